// Finding boxes: under the pointer, and one after the other by key.

import { COMPUTE, inWindow } from "./data.js";
import { laneAt, placesAt, toTime } from "./layout.js";

/** { lane, box } at a point of the picture; -1 where there is none. The shortest box wins: it lies on top. */
export function boxAt(timeline, layout, window, x, y) {
  const lane = laneAt(layout, y);
  if (lane < 0 || x < layout.left) return { lane, box: -1 };
  const near = (2 * (window[1] - window[0])) / (layout.right - layout.left); // two pixels
  const time = toTime(layout, window, x);
  for (const sub of placesAt(layout, lane, y)) {
    const box = boxNear(timeline.layers[0], lane, sub, time, near);
    if (box >= 0) return { lane, box };
  }
  return { lane, box: -1 };
}

function boxNear(layer, lane, sub, time, near) {
  const group = groupOf(layer, lane, sub);
  if (!group) return -1;
  const [from, to] = inWindow(layer, group, time - near, time + near);
  let best = -1;
  let bestKey = [Infinity, Infinity];
  for (let i = from; i < to; i++) {
    const away = Math.max(layer.start[i] - time, time - layer.end[i], 0);
    if (away > near) continue;
    const key = [away, layer.duration[i]];
    if (key[0] < bestKey[0] || (key[0] === bestKey[0] && key[1] <= bestKey[1])) [best, bestKey] = [i, key];
  }
  return best;
}

function groupOf(layer, lane, sub) {
  return layer.groups.find((group) => group.lane === lane && group.sub === sub);
}

/** The box after (by: 1) or before (by: -1) in the same place; without a box, the one at `time`, or the first. */
export function neighbour(layer, lane, box, by, time) {
  const group = groupOf(layer, lane, box >= 0 ? layer.sub[box] : COMPUTE);
  if (!group) return -1;
  if (box >= 0) return Math.min(Math.max(box + by, group.from), group.to - 1);
  return time === null ? group.from : boxFrom(layer, lane, time);
}

/** The box of the compute lane that runs at `time`, or the next one, or the last. */
export function boxFrom(layer, lane, time) {
  const group = groupOf(layer, lane, COMPUTE);
  if (!group) return -1;
  for (let i = group.from; i < group.to; i++) if (layer.end[i] > time) return i;
  return group.to - 1;
}

/** The first or the last box of the compute lane. */
export function edgeBox(layer, lane, last) {
  const group = groupOf(layer, lane, COMPUTE);
  return group ? (last ? group.to - 1 : group.from) : -1;
}
