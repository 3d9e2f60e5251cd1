// The boxes of a timeline, as many as there are: those narrower than a pixel are merged, by what took most of it.

import { COMPUTE, IDLE, inWindow } from "./data.js";
import { place } from "./layout.js";
import { Strips } from "./strips.js";

const HATCHED = 8; // beside the categories: idle boxes wide enough for hatching, which shows through the strips
const HATCH_FROM = 5; // pixels
const MOST_FRAMED = 1000; // idle boxes with a line around; drawing lines is slow
const NARROWEST = 0.5; // of a pixel, so that nothing vanishes
const FULL = 0.75; // of a pixel, from which it counts as filled

/** Fills every box of a layer that the window shows. hatch: a pattern for idle time. */
export function drawFills(context, layer, layout, window, colours, hatch, pixel) {
  const fills = [...colours.fills.slice(0, IDLE), colours.pale];
  const strips = new Strips(context, layer.groups.length, layout, pixel, fills);
  const hatched = collect(layer, layout, window, pixel, strips);
  context.fillStyle = hatch;
  for (let i = 0; i < hatched.length; i += 4) context.fillRect(hatched[i], hatched[i + 1], hatched[i + 2], hatched[i + 3]);
  strips.draw(context);
  if (hatched.length > 4 * MOST_FRAMED) return;
  context.strokeStyle = colours.idle;
  context.lineWidth = 0.75;
  for (let i = 0; i < hatched.length; i += 4) {
    context.strokeRect(hatched[i] + 0.5, hatched[i + 1] + 0.5, hatched[i + 2] - 1, hatched[i + 3] - 1);
  }
}

/** Puts boxes into strips; returns those to hatch: [x, y, width, height, …]. */
function collect(layer, layout, window, pixel, strips) {
  const { start, end, category } = layer;
  const { left, right } = layout;
  const hatched = [];
  const scale = (right - left) / (window[1] - window[0]);
  const thin = new Sliver(pixel, strips);
  for (const group of layer.groups) {
    const [from, to] = inWindow(layer, group, window[0], window[1]);
    if (from === to) continue;
    thin.begin();
    for (let i = from; i < to; i++) {
      if (end[i] < window[0]) continue;
      const a = Math.max(left + (start[i] - window[0]) * scale, left);
      const b = Math.min(left + (end[i] - window[0]) * scale, right);
      if (b - a < pixel) thin.add(a, b, category[i]);
      else addWide(strips, hatched, category[i], a, b, pixel, layout, group);
    }
    thin.flush();
    strips.end(group);
  }
  return hatched;
}

function addWide(strips, hatched, kind, a, b, pixel, layout, group) {
  const from = Math.round(a / pixel);
  const to = Math.max(Math.round(b / pixel), from + 1);
  const width = (to - from) * pixel;
  if (kind === IDLE && width >= HATCH_FROM) {
    const [y, height] = place(layout, group.lane, group.sub);
    hatched.push(from * pixel, y, width, height);
    strips.wide(from, to, HATCHED);
  } else strips.wide(from, width >= 4 ? to - 1 : to, kind); // room between neighbours
}

/** Boxes narrower than a pixel, added up by category until the next pixel begins. They come in the order of start. */
class Sliver {
  constructor(pixel, strips) {
    Object.assign(this, { pixel, strips, at: -1, waiting: false });
    this.now = new Float64Array(IDLE + 1);
    this.next = new Float64Array(IDLE + 1);
  }

  begin() {
    this.at = -1;
    this.waiting = false;
  }

  add(a, b, kind) {
    const at = Math.floor(a / this.pixel);
    if (at !== this.at) this.moveTo(at);
    const edge = (at + 1) * this.pixel;
    this.now[kind] += Math.max(Math.min(b, edge) - a, 1e-9);
    if (b > edge) {
      this.next[kind] += b - edge;
      this.waiting = true;
    }
  }

  moveTo(at) {
    this.emit();
    const carried = this.waiting;
    [this.now, this.next] = [this.next, this.now];
    this.waiting = false;
    this.at = this.at < 0 ? at : this.at + 1;
    if (carried && this.at !== at) this.emit();
    this.at = at;
  }

  flush() {
    this.emit();
    if (this.waiting) {
      [this.now, this.next] = [this.next, this.now];
      this.at += 1;
      this.emit();
    }
    this.now.fill(0);
    this.next.fill(0);
  }

  /** Gives the pixel the colour of what took most of it, as wide as the time that was taken. */
  emit() {
    const { now, pixel } = this;
    let most = -1;
    let covered = 0;
    for (let kind = 0; kind <= IDLE; kind++) {
      const time = now[kind];
      if (!time) continue;
      covered += time;
      if (most < 0 || time > now[most]) most = kind;
    }
    if (most < 0) return;
    now.fill(0);
    const share = covered / pixel;
    this.strips.narrow(this.at, share >= FULL ? 1 : Math.max(share, NARROWEST), most);
  }
}

/** The extents of the computations of a layer that the window shows, [x, y, width, height, …]; those too narrow
 * to be told apart are joined with their neighbours. */
export function extents(layer, layout, window) {
  const found = [];
  const scale = (layout.right - layout.left) / (window[1] - window[0]);
  for (const group of layer.groups) {
    if (group.sub !== COMPUTE) continue;
    const [y, height] = place(layout, group.lane, group.sub);
    const [from, to] = inWindow(layer, group, window[0], window[1]);
    let open = null;
    const close = () => open && found.push(open[0], y, Math.max(open[1] - open[0], 1), height);
    for (let i = from; i < to; i++) {
      if (layer.category[i] === IDLE) continue;
      const a = layout.left + (layer.start[i] - window[0]) * scale;
      const b = layout.left + (layer.end[i] - window[0]) * scale;
      const narrow = b - a < 4;
      if (open && narrow && open[2] && a - open[1] < 1) open[1] = Math.max(open[1], b);
      else {
        close();
        open = [a, b, narrow];
      }
    }
    close();
  }
  return found;
}
