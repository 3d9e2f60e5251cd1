// Everything that is said: what a box is, how long it took, which keys there are.

import { boxOfRow, IDLE } from "./data.js";

/** Milliseconds in words, as `lab.wording.seconds` has them: 85 µs, 3.2 ms, 1.4 s. */
export function duration(ms) {
  const [name, scale] = ms >= 999.5 ? ["s", 0.001] : ms >= 0.9995 ? ["ms", 1] : ["µs", 1000];
  return `${Number((ms * scale).toPrecision(3))} ${name}`;
}

/** What a box says, line by line; the first line names it. */
export function boxWords(timeline, layer, box) {
  const rank = timeline.ranks[layer.lane[box]];
  const long = duration(layer.duration[box]);
  const text = layer.texts[layer.text[box]];
  if (layer.category[box] === IDLE) {
    return [`idle, ${rank.name}, for ${long}`, text, `cause: ${timeline.causes[layer.cause[box]]}`];
  }
  const lines = [`${text}, ${rank.name}`, `${long}, from ${duration(layer.start[box])} on`];
  const detail = layer.detail[box];
  return detail < 0 ? lines : [...lines, ...layer.texts[detail].split("\n")];
}

/** The same of both timelines, if there are two: what was measured, and the same operation as predicted. */
export function allWords(timeline, layer, box) {
  const lines = boxWords(timeline, layer, box);
  const other = timeline.layers.find((each) => each !== layer);
  if (!other) return lines;
  lines[0] = `${layer.name}: ${lines[0]}`;
  const twin = boxOfRow(other, layer.op[box]);
  const text = layer.texts[layer.text[box]];
  if (twin < 0 || other.texts[other.text[twin]] !== text) return lines;
  return [...lines, `${other.name}: ${duration(other.duration[twin])}, from ${duration(other.start[twin])} on`];
}

/** What is to say of a rank as a whole. */
export function laneWords(timeline, lane) {
  const { name, where } = timeline.ranks[lane];
  const [layer] = timeline.layers;
  let idle = 0;
  for (let i = 0; i < layer.count; i++) {
    if (layer.lane[i] === lane && layer.category[i] === IDLE) idle += layer.duration[i];
  }
  return `${name}${where ? ` (${where})` : ""}: idle for ${duration(idle)} of ${duration(layer.length)}`;
}

export const KEYS = [
  ["W S, + −", "zoom in, zoom out"],
  ["A D", "move left, right"],
  ["F", "show the whole step"],
  ["← →, , .", "operation before, after"],
  ["↑ ↓", "rank above, below"],
  ["Home End", "first, last operation of the rank"],
  ["Enter", "zoom to the chosen operation"],
  ["Space", "play the cursor, pause"],
  ["Esc", "clear the choice and the cursor"],
  ["?", "show or hide these keys"],
  ["Ctrl or ⌘ + wheel", "zoom where the pointer is"],
  ["drag", "move; click: choose an operation, or a rank at its name"],
];

/** The name of the picture for assistive technology. */
export function pictureName(timeline, label) {
  const name = label ? `Timeline, ${label}.` : "Timeline.";
  return `${name} Arrow keys move through operations and ranks; press ? for all keys.`;
}

export function cursorWords(time) {
  return `cursor at ${duration(time)}`;
}

/** What the marked ends of two steps say. */
export function endWords(layer) {
  return `${layer.name} ${duration(layer.length)}`;
}
