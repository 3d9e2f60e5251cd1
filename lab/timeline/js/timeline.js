// A timeline in an element: its state, and what keys, pointer, other timelines and the host do to it.

import { boxOfRow, unpack } from "./data.js";
import { build, dress, fillLegend, showTip } from "./dom.js";
import { drawPicture } from "./draw.js";
import { join } from "./group.js";
import { listen } from "./input.js";
import { clampWindow, layOut, toTime } from "./layout.js";
import { drawOverlay } from "./overlay.js";
import { player } from "./play.js";
import { boxAt, boxFrom, edgeBox, neighbour } from "./select.js";
import { themeOf, watchTheme } from "./theme.js";
import { allWords, cursorWords, laneWords, pictureName } from "./words.js";

/**
 * Shows a timeline in `host` and returns { update(options), destroy() }; `update` takes any of the options again.
 *
 * options: data (of lab.timeline.timeline_data), theme ("auto", "light", "dark"), label, group (timelines of one group
 * share window and cursor), selectedRank, selectedOp (row number), cursorMs, window ([from, to] in ms, null: all of it);
 * onSelect({ rank, op }), onWindow(window), onCursor(ms): called when the reader changes them; null where there is none.
 */
export function mount(host, options) {
  const timeline = new Timeline(host);
  timeline.update(options);
  return { update: (changes) => timeline.update(changes), destroy: () => timeline.destroy() };
}

class Timeline {
  constructor(host) {
    this.parts = build(host);
    this.options = { label: "", group: "" };
    Object.assign(this, { window: null, cursor: null, lane: -1, box: -1, pointed: -1, frame: 0, stale: false });
    this.member = {
      length: () => this.timeline?.length ?? 0,
      show: (window) => this.setWindow(window),
      point: (time) => this.setCursor(time),
      resize: () => this.draw(),
      window: () => this.window,
      cursor: () => this.cursor,
    };
    this.group = join("", this.member);
    this.player = player((time) => this.setCursor(time, true), () => this.whole(), (on) => this.playing(on));
    this.stops = [
      listen(this.parts, this.actions()),
      watchTheme(() => this.paint()),
    ];
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.parts.root);
  }

  destroy() {
    this.player.stop();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    this.stops.forEach((stop) => stop());
    this.group.leave();
    this.parts.root.remove();
  }

  /** Takes in the options that differ from what they were. */
  update(given) {
    const changes = Object.fromEntries(Object.entries(given).filter(([name, value]) => !same(value, this.options[name])));
    Object.assign(this.options, changes);
    if ("data" in changes) this.load();
    if ("group" in changes) this.regroup();
    if ("data" in changes || "selectedRank" in changes || "selectedOp" in changes) this.follow(changes);
    if ("window" in changes) this.setWindow(changes.window ?? null, true);
    if ("cursorMs" in changes) this.setCursor(changes.cursorMs ?? null, true);
    if ("data" in changes || "theme" in changes || "label" in changes) this.paint();
  }

  load() {
    this.timeline = unpack(this.options.data);
    Object.assign(this, { lane: -1, box: -1, pointed: -1 });
    this.parts.tip.hidden = true;
    this.parts.title.textContent = this.timeline.title ?? "";
    this.parts.title.hidden = !this.timeline.title;
    this.parts.summary.textContent = `${this.timeline.summary} ${this.timeline.how}`;
    for (const part of ["plot", "bar", "legend", "said"]) this.parts[part].hidden = !this.timeline.layers.length;
    this.group.others().forEach((other) => other.resize());
  }

  /** Joins the group it is told of, and takes on the window and cursor found there unless it has its own. */
  regroup() {
    this.group.leave();
    this.group = join(this.options.group, this.member);
    const [other] = this.group.others();
    if (other && !this.options.window) this.setWindow(other.window());
    if (other && (this.options.cursorMs ?? null) === null) this.setCursor(other.cursor());
    this.group.others().forEach((each) => each.resize());
  }

  // -- what is chosen

  laneOf(rank) {
    return this.timeline?.ranks.findIndex((each) => each.rank === rank) ?? -1;
  }

  rank() {
    return this.lane >= 0 ? this.timeline.ranks[this.lane].rank : null;
  }

  /** Does what the host says is chosen: an operation goes before a rank; a rank alone keeps an operation on it. */
  follow(changes) {
    if (!this.timeline?.layers.length) return;
    const { selectedRank = null, selectedOp = null } = this.options;
    const layer = this.timeline.layers[0];
    const said = "selectedOp" in changes && selectedOp !== null ? boxOfRow(layer, selectedOp) : -1;
    const lane = said >= 0 ? layer.lane[said] : this.laneOf(selectedRank);
    const kept = "selectedOp" in changes ? -1 : this.box;
    const box = said >= 0 || kept < 0 || layer.lane[kept] !== lane ? said : kept;
    Object.assign(this, { lane, box });
    this.say();
    this.tell();
    this.draw();
  }

  /** Tells the host what is chosen, if that is not what it said. */
  tell() {
    const chosen = { rank: this.rank(), op: this.box < 0 ? null : rowOf(this.timeline.layers[0], this.box) };
    const { selectedRank = null, selectedOp = null } = this.options;
    if (chosen.rank === selectedRank && chosen.op === selectedOp) return;
    Object.assign(this.options, { selectedRank: chosen.rank, selectedOp: chosen.op });
    this.options.onSelect?.(chosen);
  }

  select(lane, box) {
    if (lane === this.lane && box === this.box) return;
    Object.assign(this, { lane, box });
    this.say();
    this.tell();
    this.draw();
  }

  /** Says what is chosen, for everyone below the picture and to screen readers. */
  say() {
    const { timeline, lane, box } = this;
    const layer = timeline.layers[0];
    if (box >= 0) this.parts.said.textContent = allWords(timeline, layer, box).join("; ");
    else this.parts.said.textContent = lane < 0 ? "" : laneWords(timeline, lane);
  }

  // -- window and cursor

  /** The window shown; all of the longest timeline of the group if none is set. */
  shown() {
    const whole = this.whole();
    return this.window ? clampWindow(this.window, whole) : [0, whole];
  }

  whole() {
    return Math.max(this.group.length(), 1e-6);
  }

  setWindow(window, spread = false) {
    if (same(window, this.window)) return;
    this.window = window;
    this.options.window = window;
    if (spread) this.group.others().forEach((other) => other.show(window));
    this.options.onWindow?.(window);
    this.draw();
  }

  /** A window from the reader: cut to what there is; null when it is the whole. */
  look(window) {
    const whole = this.whole();
    const [from, to] = clampWindow(window, whole);
    this.setWindow(to - from >= whole * 0.999 ? null : [from, to], true);
  }

  setCursor(time, spread = false) {
    if (time === this.cursor) return;
    this.cursor = time;
    this.options.cursorMs = time;
    if (spread) this.group.others().forEach((other) => other.point(time));
    this.options.onCursor?.(time);
    this.drawOverlay();
  }

  playing(on) {
    this.parts.buttons.play.textContent = on ? "❚❚ Pause" : "▶ Play";
    this.parts.buttons.play.setAttribute("aria-label", on ? "Pause the cursor" : "Play the cursor");
    if (!on && this.cursor !== null) this.parts.said.textContent = cursorWords(this.cursor);
  }

  // -- what the reader does

  actions() {
    return {
      zoom: (factor, x) => this.zoom(factor, x),
      pan: (share) => this.pan(share),
      drag: (pixels) => this.pan(pixels / (this.layout.right - this.layout.left)),
      fit: () => this.setWindow(null, true),
      play: () => this.player.toggle(this.cursor, this.shown()),
      keys: () => this.showKeys(),
      clear: () => this.clear(),
      point: (x, y) => this.point(x, y),
      choose: (x, y) => this.choose(x, y),
      stepOp: (by) => this.goTo(neighbour(this.timeline.layers[0], Math.max(this.lane, 0), this.box, by, this.cursor)),
      stepRank: (by) => this.stepRank(by),
      edge: (last) => this.goTo(edgeBox(this.timeline.layers[0], Math.max(this.lane, 0), last)),
      zoomToOp: () => this.zoomToOp(),
    };
  }

  zoom(factor, x) {
    const [from, to] = this.shown();
    const inside = this.cursor !== null && this.cursor > from && this.cursor < to;
    const at = x === undefined ? (inside ? this.cursor : (from + to) / 2) : toTime(this.layout, [from, to], x);
    const centre = Math.min(Math.max(at, from), to);
    this.look([centre - (centre - from) * factor, centre + (to - centre) * factor]);
  }

  /** Moves by a share of the window; whether that was possible. */
  pan(share) {
    const [from, to] = this.shown();
    const by = share * (to - from);
    const before = this.window;
    if (before) this.look([from + by, to + by]);
    return this.window !== before;
  }

  showKeys() {
    this.parts.keys.hidden = !this.parts.keys.hidden;
    this.parts.buttons.keys.setAttribute("aria-expanded", String(!this.parts.keys.hidden));
  }

  clear() {
    this.player.stop();
    this.select(-1, -1);
    this.setCursor(null, true);
    this.point(null, null);
  }

  point(x, y) {
    const { timeline, layout } = this;
    const box = x === null || !layout ? -1 : boxAt(timeline, layout, this.shown(), x, y).box;
    if (box >= 0) showTip(this.parts, allWords(timeline, timeline.layers[0], box), x, y);
    else this.parts.tip.hidden = true;
    if (box !== this.pointed) {
      this.pointed = box;
      this.drawOverlay();
    }
  }

  choose(x, y) {
    const { lane, box } = boxAt(this.timeline, this.layout, this.shown(), x, y);
    this.select(lane, box);
    if (x >= this.layout.left) this.setCursor(Math.min(Math.max(toTime(this.layout, this.shown(), x), 0), this.whole()), true);
  }

  goTo(box) {
    if (box < 0) return;
    const layer = this.timeline.layers[0];
    this.select(layer.lane[box], box);
    const [from, to] = this.shown();
    const [start, end] = [layer.start[box], layer.end[box]];
    if (start < from || end > to) {
      const length = Math.max(to - from, (end - start) * 1.2);
      this.look([(start + end - length) / 2, (start + end + length) / 2]);
    }
  }

  stepRank(by) {
    const { ranks, layers } = this.timeline;
    const lane = this.lane < 0 ? 0 : Math.min(Math.max(this.lane + by, 0), ranks.length - 1);
    const middle = this.box < 0 ? null : (layers[0].start[this.box] + layers[0].end[this.box]) / 2;
    if (middle === null) this.select(lane, -1);
    else this.goTo(boxFrom(layers[0], lane, middle));
  }

  zoomToOp() {
    if (this.box < 0) return;
    const layer = this.timeline.layers[0];
    const room = Math.max(layer.duration[this.box] * 2, 0.01);
    this.look([layer.start[this.box] - room, layer.end[this.box] + room]);
  }

  // -- drawing

  paint() {
    if (!this.timeline) return;
    const theme = themeOf(this.parts.root, this.options.theme ?? "auto");
    this.colours = this.timeline.palettes[theme];
    this.parts.root.dataset.theme = theme;
    this.parts.plot.setAttribute("aria-label", pictureName(this.timeline, this.options.label));
    dress(this.parts, this.colours);
    fillLegend(this.parts, this.timeline, this.colours);
    this.draw();
  }

  draw() {
    this.stale = true;
    this.drawOverlay();
  }

  /** Draws in the next frame, once however much was asked for. */
  drawOverlay() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.render());
  }

  render() {
    this.frame = 0;
    const width = this.parts.plot.clientWidth;
    if (!this.timeline?.layers.length || !width) return;
    const began = performance.now();
    const { timeline, colours } = this;
    if (this.stale) {
      this.layout = layOut(timeline, width);
      const context = sized(this.parts.picture, this.layout);
      drawPicture(context, timeline, this.layout, this.shown(), colours, this.lane);
      this.parts.root.dataset.drawMs = (performance.now() - began).toFixed(1);
    }
    const { lane, box, pointed, cursor } = this;
    const context = sized(this.parts.overlay, this.layout);
    drawOverlay(context, timeline, this.layout, this.shown(), colours, { lane, box, pointed, cursor });
    this.stale = false;
  }
}

/** Whether two values of an option are the same: windows by their ends, and nothing is nothing. */
function same(a, b) {
  return (a ?? null) === (b ?? null) || (Array.isArray(a) && Array.isArray(b) && String(a) === String(b));
}

function rowOf(layer, box) {
  return layer.op[box] < 0 ? null : layer.op[box];
}

/** The context of a canvas of the layout's size, in the device's pixels. */
function sized(canvas, { width, height }) {
  const ratio = devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) {
    Object.assign(canvas, { width: across, height: down });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  const context = canvas.getContext("2d", { alpha: true });
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
