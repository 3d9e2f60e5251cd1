// Where things lie: lanes from top to bottom, time from left to right, and the ticks of the axis. All in CSS pixels.

import { COMPUTE, FIRST_THIN, INSIDE } from "./data.js";

const AXIS = 24; // the row of ticks
const ENDS = 17; // the row that says where each of two steps ends
const MOST_ROOMY = 16; // ranks up to which each lane gets room for words

/** The picture's measures for a width. rows: how many ranks; thin: how many thin lanes each has. */
export function layOut(timeline, width) {
  const rows = timeline.ranks.length;
  const thin = timeline.axes.length;
  const roomy = rows <= MOST_ROOMY;
  const thick = roomy ? 34 : rows <= 64 ? 11 : rows <= 256 ? 6 : 3;
  const thinHeight = roomy ? 9 : rows <= 64 ? 3 : rows <= 256 ? 2 : 1;
  const gap = roomy ? 10 : rows <= 256 ? 3 : 1;
  const rowHeight = thick + thin * thinHeight + gap;
  const top = AXIS + (timeline.layers.length > 1 ? ENDS : 0) + 4;
  const left = width < 520 ? (roomy ? 58 : 34) : roomy ? 108 : 84;
  return {
    width, left, right: width - 8, top, rows, thin, thick, thinHeight, gap, rowHeight, roomy, narrow: width < 520,
    height: top + rows * rowHeight + 4,
  };
}

/** [y, height] of a place within a lane. */
export function place(layout, lane, sub) {
  const y = layout.top + lane * layout.rowHeight;
  if (sub === COMPUTE) return [y, layout.thick];
  if (sub === INSIDE) return [y + layout.thick * 0.225, layout.thick * 0.55];
  const height = layout.thinHeight;
  return [y + layout.thick + 1 + (sub - FIRST_THIN) * height, Math.max(height - 1, 1)];
}

/** The lane at a height, or -1. */
export function laneAt(layout, y) {
  const lane = Math.floor((y - layout.top) / layout.rowHeight);
  return lane >= 0 && lane < layout.rows ? lane : -1;
}

/** The places within a lane at a height, the innermost first. */
export function placesAt(layout, lane, y) {
  const found = [];
  for (const sub of [INSIDE, COMPUTE]) {
    const [top, height] = place(layout, lane, sub);
    if (y >= top && y <= top + height) found.push(sub);
  }
  for (let i = 0; i < layout.thin; i++) {
    const [top] = place(layout, lane, FIRST_THIN + i);
    if (y >= top - 0.5 && y < top - 0.5 + layout.thinHeight) found.push(FIRST_THIN + i);
  }
  return found;
}

export function toX(layout, window, time) {
  return layout.left + ((time - window[0]) / (window[1] - window[0])) * (layout.right - layout.left);
}

export function toTime(layout, window, x) {
  return window[0] + ((x - layout.left) / (layout.right - layout.left)) * (window[1] - window[0]);
}

/** A window moved and cut so that it lies within [0, whole] and is not shorter than a microsecond. */
export function clampWindow([from, to], whole) {
  const length = Math.min(Math.max(to - from, 0.001), whole);
  const start = Math.min(Math.max(from, 0), whole - length);
  return [start, start + length];
}

/** Ticks of the axis: round times in the window, as text in one unit. */
export function ticks(window, pixels, whole) {
  const length = window[1] - window[0];
  const most = Math.max(2, Math.floor(pixels / 64));
  const size = 10 ** Math.floor(Math.log10(length / most));
  const step = size * [1, 2, 5, 10].find((n) => length / (size * n) <= most);
  const [unit, scale] = whole >= 10000 && step >= 1 ? ["s", 1000] : step < 0.001 ? ["µs", 0.001] : ["ms", 1];
  const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
  const found = [];
  for (let i = Math.ceil(window[0] / step - 1e-9); i * step <= window[1] * (1 + 1e-12); i++) {
    found.push({ time: i * step, text: ((i * step) / scale).toFixed(digits) });
  }
  return { unit, ticks: found };
}
