// The explorer's controls: knobs that only stop at legal settings, what is going on, and whether the run is right.
import { knobElement } from "./knob.js";
import { listener } from "./listen.js";

const FRAME = `
  <form class="knobs"></form>
  <p class="said" role="status"></p>
  <div class="bar">
    <fieldset class="source"><legend>Times</legend></fieldset>
    <div class="news"><span class="badge"></span> <span class="headline" role="status"></span>
      <progress max="1" hidden aria-label="Progress of the run"></progress></div>
    <div class="buttons"><button type="button" class="cancel">Cancel run</button>
      <button type="button" class="again">Run again</button></div>
  </div>`;

function sources(model, fieldset, name) {
  const chosen = model.get("source");
  fieldset.querySelectorAll("label").forEach((label) => label.remove());
  for (const { value, text } of model.get("sources")) {
    const label = document.createElement("label");
    const radio = Object.assign(document.createElement("input"), { type: "radio", name, value });
    radio.checked = value === chosen;
    radio.addEventListener("change", () => model.send({ kind: "source", value }));
    label.append(radio, text);
    fieldset.append(label);
  }
}

export default {
  render({ model, el }) {
    const root = document.createElement("section");
    root.className = "shardlab shardlab-explorer";
    root.setAttribute("aria-label", "Explorer: turn a knob and a real run starts");
    root.innerHTML = FRAME;
    root.setAttribute("data-lm-suppress-shortcuts", "true");
    root.addEventListener("keydown", (event) => event.stopPropagation()); // JupyterLab's command mode wants the arrows
    const part = Object.fromEntries(
      ["knobs", "said", "source", "badge", "headline", "cancel", "again"].map((c) => [c, root.querySelector("." + c)]),
    );
    const progress = root.querySelector("progress");
    const say = (words) => (part.said.textContent = words);
    const wish = (name, value) => model.send({ kind: "wish", name, value });
    const knobs = new Map();
    const group = "source-" + Math.random().toString(36).slice(2);

    const turn = () => {
      for (const knob of model.get("knobs")) {
        if (!knobs.has(knob.name)) {
          knobs.set(knob.name, knobElement(knob, wish, say));
          part.knobs.append(knobs.get(knob.name).element);
        }
        knobs.get(knob.name).update(knob);
      }
    };
    const tell = () => {
      const state = model.get("state");
      root.dataset.state = state;
      root.dataset.run = model.get("run");
      root.dataset.shown = model.get("shown");
      part.headline.textContent = model.get("headline");
      part.badge.textContent = model.get("badge").text;
      part.badge.dataset.verdict = model.get("badge").verdict;
      part.cancel.disabled = !model.get("busy");
      part.again.disabled = model.get("busy");
      progress.hidden = !model.get("busy");
      progress.value = model.get("progress");
      sources(model, part.source, group);
    };
    part.cancel.addEventListener("click", () => model.send({ kind: "cancel" }));
    part.again.addEventListener("click", () => model.send({ kind: "again" }));
    const hear = listener(model);
    hear.on(["knobs"], turn);
    hear.on(["said"], () => say(model.get("said")));
    hear.on(["state", "run", "shown", "headline", "badge", "busy", "progress", "sources", "source"], tell);
    turn();
    tell();
    say(model.get("said"));
    el.replaceChildren(root);
    return hear.stop;
  },
};
