// A labelled list of ranks; the chosen one is marked in every view.
import { listener } from "./listen.js";

let count = 0;

export default {
  render({ model, el }) {
    const id = `shardlab-rank-${(count += 1)}`;
    const box = document.createElement("div");
    box.className = "shardlab shardlab-rank";
    box.addEventListener("keydown", (event) => event.stopPropagation()); // JupyterLab's command mode wants the arrows
    box.setAttribute("data-lm-suppress-shortcuts", "true");
    const label = Object.assign(document.createElement("label"), { htmlFor: id, textContent: "Mark a rank in every view" });
    const select = Object.assign(document.createElement("select"), { id });
    box.append(label, select);
    const show = () => {
      const listed = model.get("ranks").map(([rank, words]) => new Option(words, rank));
      select.replaceChildren(new Option("none", ""), ...listed);
      select.value = model.get("rank") ?? "";
    };
    select.addEventListener("change", () => {
      model.set("rank", select.value === "" ? null : Number(select.value));
      model.save_changes();
    });
    const hear = listener(model);
    hear.on(["ranks", "rank"], show);
    show();
    el.replaceChildren(box);
    return hear.stop;
  },
};
