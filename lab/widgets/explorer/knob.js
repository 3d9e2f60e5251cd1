// One knob: a labelled slider, list or switch. Stops that are not legal are passed over, and the reason is said.
const DEBOUNCE_MS = 40; // arrow keys held down repeat faster than this
let count = 0;

function stop(knob) {
  const found = knob.stops.findIndex((s) => s.value === knob.value);
  return Math.max(found, 0);
}

/** The stop to land on when `wished` is not legal: on in the direction of travel, else back to where it was. */
function legalFrom(stops, wished, from) {
  const way = Math.sign(wished - from) || 1;
  for (let i = wished; i >= 0 && i < stops.length; i += way) if (!stops[i].why) return i;
  return from;
}

function slider(id) {
  const input = Object.assign(document.createElement("input"), { type: "range", id, min: 0, step: 1 });
  const marks = document.createElement("span");
  marks.className = "stops";
  marks.setAttribute("aria-hidden", "true");
  const show = (knob, at) => {
    input.max = knob.stops.length - 1;
    input.value = at;
    input.setAttribute("aria-valuetext", knob.stops[at].text);
    const dots = knob.stops.map(({ why, text }) => {
      const dot = document.createElement("i");
      dot.className = why ? "illegal" : "legal";
      dot.title = why || text;
      return dot;
    });
    marks.replaceChildren(...dots);
  };
  return { parts: [input, marks], input, event: "input", show, wished: () => Number(input.value) };
}

function choice(id) {
  const input = Object.assign(document.createElement("select"), { id });
  const show = (knob, at) => {
    const options = knob.stops.map(({ text, why }, i) => new Option(why ? `${text} (not with these settings)` : text, i));
    input.replaceChildren(...options);
    input.value = at;
  };
  return { parts: [input], input, event: "change", show, wished: () => Number(input.value) };
}

function toggle(id) {
  const input = Object.assign(document.createElement("input"), { type: "checkbox", id });
  input.setAttribute("role", "switch");
  return {
    parts: [input], input, event: "change", wished: () => Number(input.checked),
    show: (_, at) => (input.checked = at === 1),
  };
}

const MAKERS = { slider, choice, switch: toggle };

/** {element, update(knob)}. wish(name, value): a legal setting was chosen. say(words): why one was passed over. */
export function knobElement(first, wish, say) {
  let knob = first;
  let at = stop(knob);
  let timer = 0;
  const id = `shardlab-knob-${(count += 1)}`;
  const element = document.createElement("div");
  element.className = `knob ${knob.kind}`;
  element.dataset.knob = knob.name;
  const label = Object.assign(document.createElement("label"), { htmlFor: id, textContent: knob.label });
  label.title = knob.help;
  const output = Object.assign(document.createElement("output"), { htmlFor: id });
  const { parts, input, event, show, wished } = MAKERS[knob.kind](id);
  element.append(label, ...parts, output);
  const look = () => {
    show(knob, at);
    output.textContent = knob.kind === "slider" ? knob.stops[at].text : "";
  };
  input.addEventListener(event, () => {
    const asked = wished();
    const landed = legalFrom(knob.stops, asked, at);
    const why = knob.stops[asked].why;
    say(why ? `${why}${landed === at ? "" : ` It went on to ${knob.stops[landed].text}.`}` : "");
    if (landed === at) return look();
    at = landed;
    look();
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = 0;
      wish(knob.name, knob.stops[at].value);
    }, DEBOUNCE_MS);
  });
  const update = (next) => {
    knob = next;
    if (!timer) at = stop(knob); // a knob under the learner's hand is not pulled away
    look();
  };
  look();
  return { element, update };
}
