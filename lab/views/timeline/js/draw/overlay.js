// What changes without the boxes changing: the chosen operation, its messages, what the pointer is on, the cursor.

import { COMPUTE, COMPUTING } from "./data.js";
import { font } from "./draw.js";
import { place, toX } from "./layout.js";
import { duration } from "./words.js";

/** Draws it all. chosen: { lane, box } with -1 for none; pointed: a box or -1; cursor: ms or null. */
export function drawOverlay(context, timeline, layout, window, colours, { lane, box, pointed, cursor }) {
  context.clearRect(0, 0, layout.width, layout.height);
  const layer = timeline.layers[0];
  context.save();
  context.beginPath();
  context.rect(layout.left - 3, 0, layout.right - layout.left + 6, layout.height);
  context.clip();
  if (pointed >= 0 && pointed !== box) frame(context, layer, layout, window, colours, pointed, 1.5);
  for (const message of messagesOf(layer, lane, box)) drawArrow(context, layer.messages, layout, window, colours, message);
  if (box >= 0) frame(context, layer, layout, window, colours, box, 2.5);
  context.restore();
  if (cursor !== null) drawCursor(context, layout, window, colours, cursor);
}

/** The messages of a box: those its computation waits for or makes, or it itself; without a box all of the lane. */
export function messagesOf(layer, lane, box) {
  const { messages } = layer;
  const found = [];
  for (let i = 0; i < messages.op.length; i++) {
    const receives = messages.to_lane[i] === lane;
    const sends = messages.from_lane[i] === lane;
    if (!receives && !sends) continue;
    if (box < 0 || messages.op[i] === layer.op[box] || belongs(layer, box, messages, i, receives)) found.push(i);
  }
  return found;
}

function belongs(layer, box, messages, i, receives) {
  if (layer.category[box] >= COMPUTING || layer.micro[box] !== messages.micro[i]) return false;
  const stage = receives ? messages.to_stage[i] : messages.from_stage[i];
  return stage === layer.stage[box] && Boolean(messages.backward[i]) === layer.category[box] > 0;
}

function frame(context, layer, layout, window, colours, box, width) {
  const [y, height] = place(layout, layer.lane[box], layer.sub[box]);
  const a = toX(layout, window, layer.start[box]);
  const b = Math.max(toX(layout, window, layer.end[box]), a + 2);
  for (const [colour, extra] of [[colours.paper, 3], [colours.ink, 0]]) {
    context.strokeStyle = colour;
    context.lineWidth = width + extra;
    context.strokeRect(a, y, b - a, height);
  }
}

/** A message from when it was sent to when it was there. */
function drawArrow(context, messages, layout, window, colours, i) {
  if (messages.there[i] < window[0] || messages.sent[i] > window[1]) return;
  const [from, thick] = place(layout, messages.from_lane[i], COMPUTE);
  const [to] = place(layout, messages.to_lane[i], COMPUTE);
  const down = to > from;
  const [x0, y0] = [toX(layout, window, messages.sent[i]), from + (down ? thick : 0)];
  const [x1, y1] = [toX(layout, window, messages.there[i]), to + (down ? 0 : thick)];
  const angle = Math.atan2(y1 - y0, x1 - x0);
  const head = layout.roomy ? 8 : 5;
  for (const [colour, width] of [[colours.paper, 4], [colours.ink, 1.75]]) {
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1 - Math.cos(angle) * head * 0.7, y1 - Math.sin(angle) * head * 0.7);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    for (const side of [-0.4, 0.4]) {
      context.lineTo(x1 - Math.cos(angle + side) * head, y1 - Math.sin(angle + side) * head);
    }
    context.closePath();
    if (colour === colours.ink) context.fill();
    else context.stroke();
  }
}

function drawCursor(context, layout, window, colours, time) {
  if (time < window[0] || time > window[1]) return;
  const x = toX(layout, window, time);
  context.fillStyle = colours.ink;
  context.fillRect(x - 1, 18, 2, layout.height - 18);
  const words = duration(time);
  context.font = font(11, "600");
  const wide = context.measureText(words).width + 10;
  const left = Math.min(Math.max(x - wide / 2, 0), layout.width - wide);
  context.fillRect(left, 2, wide, 17);
  context.fillStyle = colours.paper;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(words, left + 5, 11);
}
