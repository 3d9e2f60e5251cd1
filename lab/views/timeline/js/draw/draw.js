// The still part of the picture: names of lanes, axis, boxes, numbers, outlines of the prediction, ends of the steps.

import { COMPUTE, FIRST_THIN, runsOf } from "./data.js";
import { drawFills, extents } from "./fills.js";
import { place, ticks, toX } from "./layout.js";
import { endWords } from "./words.js";

const FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif";

/** Draws all but what follows the pointer or the cursor. chosen: the lane to mark, or -1. */
export function drawPicture(context, timeline, layout, window, colours, chosen) {
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, layout.width, layout.height);
  drawAxis(context, timeline, layout, window, colours);
  if (chosen >= 0) drawChosen(context, layout, colours, chosen);
  drawNames(context, timeline, layout, colours, chosen);
  context.save();
  context.beginPath();
  context.rect(layout.left, layout.top - 3, layout.right - layout.left, layout.height - layout.top + 3);
  context.clip();
  const pixel = 1 / (context.getTransform().a || 1);
  const [first, second] = timeline.layers;
  drawFills(context, first, layout, window, colours, hatching(context, colours), pixel);
  if (second) drawOutlines(context, second, layout, window, colours);
  drawNumbers(context, first, layout, window, colours);
  context.restore();
  if (second) drawEnds(context, timeline, layout, window, colours);
}

/** A font of the picture. */
export function font(size, weight = "") {
  return `${weight} ${size}px ${FONT}`.trim();
}

let hatched = { key: "" };

/** Strokes of the idle colour on the page, as the figures have them. */
function hatching(context, colours) {
  const key = colours.idle + colours.paper;
  if (hatched.key !== key) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const brush = tile.getContext("2d");
    brush.fillStyle = colours.paper;
    brush.fillRect(0, 0, 6, 6);
    brush.strokeStyle = colours.idle;
    brush.lineWidth = 1.5;
    for (const shift of [-6, 0, 6]) {
      brush.moveTo(shift - 1, 7);
      brush.lineTo(shift + 7, -1);
    }
    brush.stroke();
    hatched = { key, pattern: context.createPattern(tile, "repeat") };
  }
  return hatched.pattern;
}

function drawAxis(context, timeline, layout, window, colours) {
  const { unit, ticks: found } = ticks(window, layout.right - layout.left, timeline.length);
  context.font = font(11);
  context.textBaseline = "middle";
  context.strokeStyle = colours.grid;
  context.lineWidth = 1;
  context.beginPath();
  for (const tick of found) {
    const x = Math.round(toX(layout, window, tick.time)) + 0.5;
    context.moveTo(x, 19);
    context.lineTo(x, layout.height);
  }
  context.stroke();
  context.fillStyle = colours.faint;
  for (const tick of found) {
    const x = toX(layout, window, tick.time);
    const half = context.measureText(tick.text).width / 2;
    context.textAlign = "left";
    context.fillText(tick.text, Math.min(Math.max(x - half, layout.left - half), layout.width - 2 * half - 1), 11);
  }
  context.textAlign = "left";
  context.fillText(layout.narrow ? unit : `time in ${unit}`, 2, 11);
}

function drawChosen(context, layout, colours, lane) {
  const y = layout.top + lane * layout.rowHeight - Math.min(layout.gap / 2, 3);
  context.fillStyle = colours.grid;
  context.fillRect(0, y, layout.width, layout.rowHeight);
  context.fillStyle = colours.ink;
  context.fillRect(0, y, 4, layout.rowHeight);
  context.fillRect(0, y, layout.width, 1);
  context.fillRect(0, y + layout.rowHeight - 1, layout.width, 1);
}

function drawNames(context, timeline, layout, colours, chosen) {
  context.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(11 / layout.rowHeight)); // names must not lie on each other
  timeline.ranks.forEach((rank, lane) => {
    if (lane % every && lane !== chosen) return;
    const [y, height] = place(layout, lane, COMPUTE);
    const x = lane === chosen ? 9 : 2;
    context.fillStyle = colours.ink;
    context.textAlign = "left";
    context.font = font(layout.roomy ? 12 : 10, lane === chosen ? "700" : "");
    const twoLines = layout.roomy && rank.where;
    const [name, ...others] = rank.name.split(" (");
    const shown = layout.narrow && !layout.roomy ? String(rank.rank) : name;
    context.fillText(shown, x, y + height / 2 - (twoLines || others.length ? 7 : 0), layout.left - x - 6);
    if (twoLines || (layout.roomy && others.length)) {
      context.fillStyle = colours.faint;
      context.font = font(10);
      context.fillText(twoLines ? rank.where : `(${others.join(" (")}`, x, y + height / 2 + 7, layout.left - x - 6);
    }
    if (!layout.roomy) return;
    context.fillStyle = colours.faint;
    context.font = font(9);
    context.textAlign = "right";
    timeline.axes.forEach((axis, i) => {
      const [top, thin] = place(layout, lane, FIRST_THIN + i);
      context.fillText(axis, layout.left - 5, top + thin / 2 + 0.5);
    });
  });
}

/** The micro-batch of each run of boxes where it fits. */
function drawNumbers(context, layer, layout, window, colours) {
  if (layout.thick < 11) return;
  const size = Math.min(12, layout.thick);
  context.font = font(size);
  context.textAlign = "center";
  context.textBaseline = "middle";
  const scale = (layout.right - layout.left) / (window[1] - window[0]);
  for (const run of runsOf(layer)) {
    const room = (Math.min(run.end, window[1]) - Math.max(run.start, window[0])) * scale;
    if (room < 11) continue; // not even one digit
    const text = String(run.micro);
    if (room < 7 * text.length + 4) continue;
    const middle = (Math.max(run.start, window[0]) + Math.min(run.end, window[1])) / 2;
    const [y, height] = place(layout, run.lane, COMPUTE);
    context.fillStyle = colours.inks[run.category];
    context.fillText(text, toX(layout, window, middle), y + height / 2 + 0.5);
  }
}

/** What was predicted: outlines over the boxes of what was measured. */
function drawOutlines(context, layer, layout, window, colours) {
  const found = extents(layer, layout, window);
  for (const [colour, width] of [[colours.paper, 3.5], [colours.ink, 1.5]]) { // paper first: seen on every fill
    context.strokeStyle = colour;
    context.lineWidth = layout.roomy ? width : width / 1.5;
    for (let i = 0; i < found.length; i += 4) {
      context.strokeRect(found[i], found[i + 1], found[i + 2], found[i + 3]);
    }
  }
}

/** Where each of the two steps ends, in words too. */
function drawEnds(context, timeline, layout, window, colours) {
  context.font = font(11);
  context.textBaseline = "middle";
  context.textAlign = "left";
  const ends = timeline.layers.map((layer, i) => ({ x: toX(layout, window, layer.length), words: endWords(layer), i }));
  const seen = ends.filter(({ x }) => x >= layout.left && x <= layout.right + 1);
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.5;
  for (const { x, i } of seen) {
    context.setLineDash(i ? [2, 3] : [6, 3]);
    context.beginPath();
    context.moveTo(x, 24);
    context.lineTo(x, layout.height);
    context.stroke();
  }
  context.setLineDash([]);
  context.fillStyle = colours.ink;
  for (const { x, words } of besideLines(context, layout, seen)) context.fillText(words, x, 33);
}

/** The words of each end on the side where there is room; in one where they would lie on each other. */
function besideLines(context, layout, ends) {
  const placed = ends.map(({ x, words }) => {
    const wide = context.measureText(words).width;
    return { x: x + 4 + wide <= layout.right ? x + 4 : x - 4 - wide, words, wide };
  });
  const [a, b] = placed;
  if (!b || a.x + a.wide + 6 < b.x || b.x + b.wide + 6 < a.x) return placed;
  const words = ends.map((end) => end.words).join(", ");
  const [first, last] = [Math.min(ends[0].x, ends[1].x), Math.max(ends[0].x, ends[1].x)];
  const wide = context.measureText(words).width;
  return [{ x: last + 4 + wide <= layout.right ? last + 4 : Math.max(first - 4 - wide, 0), words }];
}
