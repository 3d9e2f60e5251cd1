// The boxes of a timeline, as many as there are: those narrower than a pixel are merged, by what took most of it.

import { COMPUTE, IDLE, INSIDE, inWindow } from "./data.js";
import { place } from "./layout.js";

const HATCHED = 8; // beside the categories: idle boxes wide enough for hatching
const HATCH_FROM = 5; // pixels
const MOST_FRAMED = 1000; // idle boxes with a line around; drawing lines is slow
const NARROWEST = 0.5; // of a pixel, so that nothing vanishes
const FULL = 0.75; // of a pixel, from which it counts as filled

/** Fills every box of a layer that the window shows. hatch: a pattern for idle time. */
export function drawFills(context, layer, layout, window, colours, hatch, pixel) {
  const rects = collect(layer, layout, window, pixel);
  const fills = [...colours.fills.slice(0, IDLE), colours.pale, hatch];
  for (const kinds of [rects.wide, rects.narrow, rects.wideInside, rects.narrowInside]) {
    kinds.forEach((list, kind) => {
      context.fillStyle = fills[kind];
      for (let i = 0; i < list.length; i += 4) context.fillRect(list[i], list[i + 1], list[i + 2], list[i + 3]);
    });
  }
  const idle = rects.wide[HATCHED];
  if (idle.length > 4 * MOST_FRAMED) return;
  context.strokeStyle = colours.idle;
  context.lineWidth = 0.75;
  for (let i = 0; i < idle.length; i += 4) context.strokeRect(idle[i] + 0.5, idle[i + 1] + 0.5, idle[i + 2] - 1, idle[i + 3] - 1);
}

/** Rectangles [x, y, width, height, …] by category, in the order of drawing: narrow ones lie on wide neighbours, or
 * rounding could hide them; what blocks a computation lies on top of it. */
function collect(layer, layout, window, pixel) {
  const kinds = () => Array.from({ length: HATCHED + 1 }, () => []);
  const rects = { wide: kinds(), narrow: kinds(), wideInside: kinds(), narrowInside: kinds() };
  const scale = (layout.right - layout.left) / (window[1] - window[0]);
  const thin = new Sliver(pixel);
  for (const group of layer.groups) {
    const [y, height] = place(layout, group.lane, group.sub);
    const inside = group.sub === INSIDE;
    const wide = inside ? rects.wideInside : rects.wide;
    const [from, to] = inWindow(layer, group, window[0], window[1]);
    thin.begin(inside ? rects.narrowInside : rects.narrow, y, height);
    for (let i = from; i < to; i++) {
      if (layer.end[i] < window[0]) continue;
      const a = Math.max(layout.left + (layer.start[i] - window[0]) * scale, layout.left);
      const b = Math.min(layout.left + (layer.end[i] - window[0]) * scale, layout.right);
      const kind = layer.category[i];
      if (b - a < pixel) thin.add(a, b, kind);
      else addWide(wide, kind, a, b, y, height, pixel);
    }
    thin.flush();
  }
  return rects;
}

function addWide(into, kind, a, b, y, height, pixel) {
  const x = Math.round(a / pixel) * pixel;
  let width = Math.max(Math.round(b / pixel) * pixel - x, pixel);
  const hatched = kind === IDLE && width >= HATCH_FROM;
  if (width >= 4 && !hatched) width -= pixel; // room between neighbours
  into[hatched ? HATCHED : kind].push(x, y, width, height);
}

/** Boxes narrower than a pixel, added up by category until the next pixel begins. They come in the order of start. */
class Sliver {
  constructor(pixel) {
    this.pixel = pixel;
    this.now = new Float64Array(IDLE + 1);
    this.next = new Float64Array(IDLE + 1);
  }

  begin(into, y, height) {
    Object.assign(this, { into, y, height, at: -1, waiting: false, grows: -1, until: -1 });
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

  /** Draws the pixel in the colour of what took most of it, as wide as the time that was taken; full pixels of one
   * category become one rectangle. */
  emit() {
    let most = -1;
    let covered = 0;
    for (let kind = 0; kind <= IDLE; kind++) {
      const time = this.now[kind];
      if (!time) continue;
      covered += time;
      if (most < 0 || time > this.now[most]) most = kind;
    }
    if (most < 0) return;
    this.now.fill(0);
    const { pixel, into, at } = this;
    const full = covered >= FULL * pixel;
    const width = full ? pixel : Math.max(covered, NARROWEST * pixel);
    const list = into[most];
    if (full && this.grows === most && this.until === at) list[list.length - 2] += pixel;
    else list.push(at * pixel, this.y, width, this.height);
    this.grows = full ? most : -1;
    this.until = at + 1;
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
