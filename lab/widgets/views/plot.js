// A plotly figure in the colours of the page. plotly.js comes from the kernel, once a page: nothing is fetched.
import { listener } from "./listen.js";
import { themeOf, watchTheme } from "./theme.js";

const LIBRARY = Symbol.for("shardlab.plotly");
const TURNS = Symbol.for("shardlab.turns");
const CONFIG = { displaylogo: false, showSendToCloud: false, responsive: false, scrollZoom: false };

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

/** The figure in the theme of the page, if it is known for that theme: what the other one has differently comes later. */
function themed(model, theme) {
  const spec = JSON.parse(model.get("spec"));
  const other = model.get("other") ? JSON.parse(model.get("other")) : {};
  if (spec.theme !== theme && other.version === spec.version) {
    for (const [path, value] of other.changes) {
      const last = path.pop();
      path.reduce((at, key) => at[key], spec)[last] = value;
    }
  }
  const clear = "rgba(0,0,0,0)"; // the page is the paper
  const modebar = { orientation: "v", bgcolor: clear }; // along the side, where it covers no legend
  Object.assign(spec.layout, { paper_bgcolor: clear, plot_bgcolor: clear, modebar });
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

/** Draws when its turn comes. Figures take turns, and the page is free in between: other widgets must start meanwhile. */
function inTurn(draw) {
  const free = () => new Promise((go) => (globalThis.requestIdleCallback ?? setTimeout)(go, { timeout: 1000 }));
  globalThis[TURNS] = (globalThis[TURNS] ?? Promise.resolve()).then(free).then(draw).catch(console.error);
}

export default {
  async render({ model, el }) {
    const { figure, box, say } = frame(model, el);
    const fail = (error) => {
      Plotly?.purge(box); // or it would draw the next one into what is no longer on the page
      box.textContent = `The figure could not be drawn: ${error.message}`;
      failed = true;
    };
    let Plotly, width = 0, asked = false, gone = false, failed = false;
    const click = ({ points: [p] }) => {
      const [x, y] = [p.x, p.y].map((v) => (typeof v === "number" ? v : String(v)));
      model.send({ kind: "click", id: p.id ?? "", x, y });
    };
    const draw = async () => {
      asked = false;
      if (gone) return;
      try {
        Plotly ??= await library(model);
        if (gone) return;
        if (failed) box.replaceChildren();
        failed = false;
        const { data, layout } = themed(model, themeOf(el, "auto"));
        say();
        await Plotly.react(box, data, layout, CONFIG);
        width = box.offsetWidth;
        box.removeAllListeners("plotly_click");
        box.on("plotly_click", click);
        figure.dataset.drawn = model.get("run");
      } catch (error) {
        fail(error);
      }
    };
    const ask = () => {
      if (asked || !model.get("spec")) return; // it will draw what is newest then, or has nothing to show yet
      asked = true;
      inTurn(draw);
    };
    const fit = () => {
      if (gone || !Plotly || !box.offsetWidth || box.offsetWidth === width) return;
      width = box.offsetWidth;
      return Plotly.Plots.resize(box).catch(fail);
    };
    const dress = () => {
      model.set("dark", themeOf(el, "auto") === "dark"); // the kernel makes that one first
      model.save_changes();
      ask();
    };
    const completed = () => {
      if (model.get("spec") && JSON.parse(model.get("spec")).theme !== themeOf(el, "auto")) ask();
    };
    dress();
    const hear = listener(model);
    hear.on(["spec", "run"], ask); // another run may have the same picture
    hear.on(["other"], completed);
    const unwatch = watchTheme(dress);
    const observer = new ResizeObserver(() => inTurn(fit));
    observer.observe(figure);
    return () => {
      gone = true;
      unwatch();
      observer.disconnect();
      hear.stop();
      Plotly?.purge(box);
    };
  },
};
