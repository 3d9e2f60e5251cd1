// The elements of a timeline. Every word from the data is set as text, never as HTML.

import { KEYS } from "./words.js";

const STYLE = `
.sl-timeline { position: relative; font: 13px/1.45 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--sl-ink);
  background: var(--sl-paper); padding: 6px; min-width: 0; overflow-wrap: anywhere; }
.sl-timeline * { box-sizing: border-box; }
.sl-timeline p { margin: 0 0 6px; max-width: none; font-size: 13px; }
.sl-title { font-weight: 600; }
.sl-bar { display: flex; flex-wrap: wrap; gap: 4px; margin: 0 0 6px; }
.sl-bar button { font: inherit; color: var(--sl-ink); background: var(--sl-paper); border: 1px solid var(--sl-faint);
  border-radius: 4px; padding: 2px 9px; min-height: 26px; cursor: pointer; }
.sl-bar button:hover { background: var(--sl-grid); }
.sl-timeline :focus-visible { outline: 3px solid var(--sl-focus); outline-offset: 1px; }
.sl-legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 0 0 6px; padding: 0; }
.sl-legend li { display: flex; align-items: center; gap: 5px; margin: 0; }
.sl-swatch { width: 14px; height: 12px; flex: none; }
.sl-plot { position: relative; touch-action: pan-y; cursor: grab; }
.sl-plot:active { cursor: grabbing; }
.sl-plot canvas { display: block; }
.sl-plot canvas + canvas { position: absolute; left: 0; top: 0; pointer-events: none; }
.sl-tip { position: absolute; z-index: 3; pointer-events: none; background: var(--sl-paper); color: var(--sl-ink);
  border: 1px solid var(--sl-faint); border-radius: 4px; padding: 5px 8px; width: max-content;
  max-width: min(340px, 96%); box-shadow: 0 2px 8px rgb(0 0 0 / 25%); }
.sl-tip div:first-child { font-weight: 600; }
.sl-said { min-height: 1.45em; color: var(--sl-faint); }
.sl-keys { border-collapse: collapse; margin: 4px 0; font-size: 13px; }
.sl-keys caption { text-align: left; font-weight: 600; color: var(--sl-ink); }
.sl-keys th, .sl-keys td { text-align: left; font-weight: 400; padding: 2px 14px 2px 0; border: 0; color: var(--sl-ink); }
.sl-keys th { white-space: nowrap; font-weight: 600; }
.sl-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.sl-timeline [hidden] { display: none; }
`;

/** An element with text and attributes. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children); // strings become text nodes
  return element;
}

/** Puts the empty timeline into a host and returns its parts by name. */
export function build(host) {
  const id = `sl-${Math.random().toString(36).slice(2)}`;
  const buttons = {
    in: button("+", "Zoom in"),
    out: button("−", "Zoom out"),
    fit: button("Fit", "Show the whole step"),
    play: button("▶ Play", "Play the cursor"),
    keys: button("? Keys", "Show the keys"),
    save: button("PNG", "Save as a picture"),
  };
  const parts = {
    buttons,
    title: make("p", { class: "sl-title" }),
    legend: make("ul", { class: "sl-legend", "aria-label": "Legend" }),
    picture: make("canvas", { "aria-hidden": "true" }),
    overlay: make("canvas", { "aria-hidden": "true" }),
    tip: make("div", { class: "sl-tip", hidden: "" }),
    said: make("p", { class: "sl-said", "aria-live": "polite" }),
    summary: make("p", { class: "sl-hidden", id }),
    keys: keyTable(),
  };
  parts.plot = make("div", { class: "sl-plot", tabindex: "0", role: "application", "aria-describedby": id });
  parts.plot.append(parts.picture, parts.overlay, parts.tip);
  parts.bar = make("div", { class: "sl-bar", role: "group", "aria-label": "Timeline controls" }, ...Object.values(buttons));
  parts.root = make("div", { class: "sl-timeline" }, make("style", {}, STYLE));
  parts.root.append(parts.title, parts.bar, parts.keys, parts.legend, parts.plot, parts.said, parts.summary);
  host.replaceChildren(parts.root);
  return parts;
}

function button(text, label) {
  return make("button", { type: "button", "aria-label": label, title: label }, text);
}

function keyTable() {
  const rows = KEYS.map(([keys, does]) => make("tr", {}, make("th", { scope: "row" }, keys), make("td", {}, does)));
  const table = make("table", { class: "sl-keys", hidden: "" }, make("caption", {}, "Keys and pointer"));
  table.append(make("tbody", {}, ...rows));
  return table;
}

/** The colours of the page around the canvas. */
export function dress(parts, colours) {
  for (const name of ["ink", "paper", "faint", "grid"]) parts.root.style.setProperty(`--sl-${name}`, colours[name]);
  parts.root.style.setProperty("--sl-focus", colours.fills[0]);
}

/** The legend: a sample and a word for each category that occurs. */
export function fillLegend(parts, timeline, colours) {
  const items = timeline.categories.flatMap((name, i) => {
    if (!timeline.present[i]) return [];
    const swatch = make("span", { class: "sl-swatch", "aria-hidden": "true" });
    const idle = i === timeline.categories.length - 1;
    swatch.style.border = `1px solid ${colours.fills[i]}`;
    const [stroke, gap] = [colours.idle, colours.paper];
    swatch.style.background = idle
      ? `repeating-linear-gradient(135deg, ${stroke} 0 1.5px, ${gap} 1.5px 4.5px)`
      : colours.fills[i];
    return [make("li", {}, swatch, name)];
  });
  const [, second] = timeline.layers;
  if (second) {
    const swatch = make("span", { class: "sl-swatch", "aria-hidden": "true" });
    swatch.style.border = `2px solid ${colours.ink}`;
    items.push(make("li", {}, swatch, `outline: ${second.name}`));
  }
  parts.legend.replaceChildren(...items);
}

/** Shows lines of text beside a point of the plot, inside of it. */
export function showTip(parts, lines, x, y) {
  parts.tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
  parts.tip.hidden = false;
  const { clientWidth: width } = parts.plot;
  const left = x + 14 + parts.tip.offsetWidth > width ? x - 14 - parts.tip.offsetWidth : x + 14;
  parts.tip.style.left = `${Math.max(0, Math.min(left, width - parts.tip.offsetWidth))}px`;
  parts.tip.style.top = `${y + 16}px`;
}
