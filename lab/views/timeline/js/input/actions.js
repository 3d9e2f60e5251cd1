// What the reader can do to a timeline, by key, pointer or button.

import { showTip } from "./dom.js";
import { toTime } from "./layout.js";
import { savePicture } from "./save.js";
import { boxAt, boxFrom, edgeBox, neighbour } from "./select.js";
import { allWords } from "./words.js";

/** The actions on a timeline, by name, as `listen` calls them. */
export function actionsOf(of) {
  const layer = () => of.timeline.layers[0];
  const lane = () => Math.max(of.lane, 0);
  return {
    zoom: (factor, x) => zoom(of, factor, x),
    pan: (share) => pan(of, share),
    drag: (pixels) => pan(of, pixels / (of.layout.right - of.layout.left)),
    fit: () => of.setWindow(null, true),
    play: () => of.player.toggle(of.cursor, of.shown()),
    keys: () => of.showKeys(),
    save: () => savePicture(of),
    clear: () => clear(of),
    point: (x, y) => point(of, x, y),
    choose: (x, y) => choose(of, x, y),
    stepOp: (by) => goTo(of, neighbour(layer(), lane(), of.box, by, of.cursor)),
    stepRank: (by) => stepRank(of, by),
    edge: (last) => goTo(of, edgeBox(layer(), lane(), last)),
    zoomToOp: () => zoomToOp(of),
  };
}

/** Zooms around a place in the picture, else around the cursor if it shows, else around the middle. */
function zoom(of, factor, x) {
  const [from, to] = of.shown();
  const inside = of.cursor !== null && of.cursor > from && of.cursor < to;
  const at = x === undefined ? (inside ? of.cursor : (from + to) / 2) : toTime(of.layout, [from, to], x);
  const centre = Math.min(Math.max(at, from), to);
  of.look([centre - (centre - from) * factor, centre + (to - centre) * factor]);
}

/** Moves by a share of the window; whether that was possible. */
function pan(of, share) {
  const [from, to] = of.shown();
  const by = share * (to - from);
  const before = of.window;
  if (before) of.look([from + by, to + by]);
  return of.window !== before;
}

function clear(of) {
  of.player.stop();
  of.select(-1, -1);
  of.setCursor(null, true);
  point(of, null, null);
}

/** Says what is under the pointer; x is null when it has left. */
function point(of, x, y) {
  const { timeline, layout } = of;
  const box = x === null || !layout ? -1 : boxAt(timeline, layout, of.shown(), x, y).box;
  if (box >= 0) showTip(of.parts, allWords(timeline, timeline.layers[0], box), x, y);
  else of.parts.tip.hidden = true;
  if (box === of.pointed) return;
  of.pointed = box;
  of.drawOverlay();
}

function choose(of, x, y) {
  const { lane, box } = boxAt(of.timeline, of.layout, of.shown(), x, y);
  of.select(lane, box);
  if (x < of.layout.left) return;
  of.setCursor(Math.min(Math.max(toTime(of.layout, of.shown(), x), 0), of.whole()), true);
}

/** Chooses a box and brings it into the window. */
function goTo(of, box) {
  if (box < 0) return;
  const layer = of.timeline.layers[0];
  of.select(layer.lane[box], box);
  const [from, to] = of.shown();
  const [start, end] = [layer.start[box], layer.end[box]];
  if (start >= from && end <= to) return;
  const length = Math.max(to - from, (end - start) * 1.2);
  of.look([(start + end - length) / 2, (start + end + length) / 2]);
}

/** The rank above or below; with a box chosen, what runs there in the middle of it. */
function stepRank(of, by) {
  const { ranks, layers } = of.timeline;
  const lane = of.lane < 0 ? 0 : Math.min(Math.max(of.lane + by, 0), ranks.length - 1);
  if (of.box < 0) of.select(lane, -1);
  else goTo(of, boxFrom(layers[0], lane, (layers[0].start[of.box] + layers[0].end[of.box]) / 2));
}

function zoomToOp(of) {
  if (of.box < 0) return;
  const layer = of.timeline.layers[0];
  const room = Math.max(layer.duration[of.box] * 2, 0.01);
  of.look([layer.start[of.box] - room, layer.end[of.box] + room]);
}
