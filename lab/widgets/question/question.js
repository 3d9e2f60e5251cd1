// A question that must be answered before its run shows. What was answered cannot be changed, only asked again.
import { listener } from "./listen.js";

let count = 0;

function choices(model, fieldset, name) {
  for (const text of model.get("choices")) {
    const label = document.createElement("label");
    label.append(Object.assign(document.createElement("input"), { type: "radio", name, value: text }), " ", text);
    fieldset.append(label);
  }
  return () => fieldset.querySelector("input:checked")?.value ?? null;
}

function number(model, fieldset) {
  const { unit, low, high } = model.get("number");
  const label = document.createElement("label");
  const input = Object.assign(document.createElement("input"), { type: "number", min: low, max: high, step: "any" });
  label.append("Your answer ", input, ` ${unit}`);
  fieldset.append(label);
  return () => (input.value === "" ? null : Number(input.value));
}

export default {
  render({ model, el }) {
    const root = document.createElement("section");
    root.className = "shardlab shardlab-question";
    root.setAttribute("aria-label", "Predict, then reveal");
    root.setAttribute("data-lm-suppress-shortcuts", "true");
    root.addEventListener("keydown", (event) => event.stopPropagation());
    root.innerHTML = `<form><fieldset><legend></legend></fieldset><div class="row">
      <button type="submit" class="main">Lock in my answer</button><button type="button" class="again">Ask me again</button>
      <span class="hint" role="status"></span></div></form><p class="feedback" role="status"></p>`;
    const [form, fieldset] = [root.querySelector("form"), root.querySelector("fieldset")];
    root.querySelector("legend").textContent = model.get("question");
    const name = `shardlab-question-${(count += 1)}`;
    const answer = (model.get("choices").length ? choices : number)(model, fieldset, name);
    const hint = root.querySelector(".hint");
    const again = root.querySelector(".again");
    form.noValidate = true;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = answer();
      if (given === null) hint.textContent = "Answer first: a guess is fine, it is what makes the picture stick.";
      else model.send({ kind: "answer", value: given });
    });
    again.addEventListener("click", () => model.send({ kind: "again" }));
    const show = () => {
      const state = model.get("state");
      root.dataset.state = state;
      fieldset.disabled = state !== "open";
      form.querySelector("button.main").disabled = state !== "open";
      again.hidden = state !== "answered";
      hint.textContent = model.get("hint");
      root.querySelector(".feedback").textContent = model.get("feedback");
    };
    const fill = () => {
      const given = model.get("given");
      for (const input of fieldset.querySelectorAll("input")) {
        if (input.type === "radio") input.checked = input.value === given;
        else input.value = given ?? "";
      }
    };
    const hear = listener(model);
    hear.on(["state", "hint", "feedback"], show);
    hear.on(["given"], fill);
    fill();
    show();
    el.replaceChildren(root);
    return hear.stop;
  },
};
