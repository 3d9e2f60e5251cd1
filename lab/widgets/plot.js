// A plotly figure in the colours of the page. plotly.js comes from the kernel, once a page: nothing is fetched.
import { themeOf, watchTheme } from "./theme.js";

const LIBRARY = Symbol.for("shardlab.plotly");
const CONFIG = { displaylogo: false, showSendToCloud: false, responsive: true, scrollZoom: false };

async function library(model) {
  globalThis[LIBRARY] ??= (async () => {
    const kept = await model.widget_manager.get_model(model.get("library").slice("IPY_MODEL_".length));
    const packed = new Blob([kept.get("source")]).stream().pipeThrough(new DecompressionStream("gzip"));
    const module = { exports: {} };
    new Function("module", await new Response(packed).text())(module);
    return module.exports;
  })();
  try {
    return await globalThis[LIBRARY];
  } catch (error) {
    globalThis[LIBRARY] = undefined; // the next figure may have more luck
    throw error;
  }
}

/** The figure in light or dark: the dark one is the light one with some values changed. */
function themed(model, dark) {
  const spec = JSON.parse(model.get("spec"));
  if (dark) {
    for (const [path, value] of spec.dark) {
      const last = path.pop();
      path.reduce((at, key) => at[key], spec)[last] = value;
    }
  }
  const clear = "rgba(0,0,0,0)"; // the page is the paper
  Object.assign(spec.layout, { paper_bgcolor: clear, plot_bgcolor: clear });
  return spec;
}

function frame(model, el) {
  const figure = document.createElement("figure");
  figure.className = "shardlab shardlab-plot";
  figure.innerHTML = '<figcaption></figcaption><div class="box"></div><p class="how"></p>';
  const [caption, box, how] = figure.children;
  const say = () => {
    caption.textContent = model.get("title");
    how.textContent = model.get("how");
    figure.setAttribute("aria-label", `${model.get("title")}. ${model.get("how")}`);
    figure.dataset.view = model.get("view");
    box.style.height = `${model.get("height")}px`;
  };
  say();
  el.replaceChildren(figure);
  return { figure, box, say };
}

export default {
  async render({ model, el }) {
    const { figure, box, say } = frame(model, el);
    let Plotly;
    try {
      Plotly = await library(model);
    } catch (error) {
      box.textContent = `The figure could not be drawn: ${error.message}`;
      return;
    }
    let last = Promise.resolve();
    let listens = false;
    const listen = () => {
      if (listens) return;
      listens = true;
      box.on("plotly_click", ({ points: [p] }) => {
        const [x, y] = [p.x, p.y].map((v) => (typeof v === "number" ? v : String(v)));
        model.send({ kind: "click", curve: p.curveNumber, point: p.pointNumber, x, y });
      });
    };
    const draw = () => {
      if (!model.get("spec")) return; // what it shall show is still being made
      say();
      const { data, layout } = themed(model, themeOf(el, "auto") === "dark");
      last = last
        .then(() => Plotly.react(box, data, layout, CONFIG))
        .then(listen)
        .then(() => (figure.dataset.drawn = model.get("run")))
        .catch((error) => (box.textContent = `The figure could not be drawn: ${error.message}`));
    };
    let due = false;
    const soon = () => {
      if (!due) queueMicrotask(() => ((due = false), draw()));
      due = true;
    };
    draw();
    model.on("change:spec change:run", soon); // another run may have the same picture
    const unwatch = watchTheme(draw);
    const observer = new ResizeObserver(() => box.offsetWidth && Plotly.Plots.resize(box));
    observer.observe(figure);
    return () => {
      unwatch();
      observer.disconnect();
      model.off("change:spec change:run", soon);
      Plotly.purge(box);
    };
  },
};
