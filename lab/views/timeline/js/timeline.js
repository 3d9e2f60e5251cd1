// A timeline in an element: its state, and what keys, pointer, other timelines and the host do to it.

import { actionsOf } from "./actions.js";
import { boxOfRow, unpack } from "./data.js";
import { build, dress, fillLegend } from "./dom.js";
import { drawPicture } from "./draw.js";
import { join } from "./group.js";
import { listen } from "./input.js";
import { clampWindow, layOut } from "./layout.js";
import { drawOverlay } from "./overlay.js";
import { player } from "./play.js";
import { themeOf, watchTheme } from "./theme.js";
import { allWords, cursorWords, laneWords, pictureName } from "./words.js";

/**
 * Shows a timeline in `host` and returns { update(options), repaint(), destroy() }; `update` takes any of the options again.
 *
 * options: data (of lab.timeline.timeline_data), theme ("auto", "light", "dark"), label, group (timelines of one group
 * share window and cursor), selectedRank, selectedOp (row number), cursorMs, window ([from, to] in ms, null: all of it);
 * onSelect({ rank, op }), onWindow(window), onCursor(ms): called when the reader changes them; null where there is none.
 */
export function mount(host, options) {
  const timeline = new Timeline(host);
  timeline.update(options);
  return {
    update: (changes) => timeline.update(changes),
    repaint: () => timeline.paint(), // for hosts that say when the page's colours have changed
    destroy: () => timeline.destroy(),
  };
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
      listen(this.parts, actionsOf(this)),
      watchTheme(() => this.paint()),
    ];
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.parts.root);
    // a host may hide what is scrolled away, without a change of size when it comes back
    this.sight = new IntersectionObserver(() => this.stale && this.drawOverlay());
    this.sight.observe(this.parts.root);
  }

  destroy() {
    this.player.stop();
    this.observer.disconnect();
    this.sight.disconnect();
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

  showKeys() {
    this.parts.keys.hidden = !this.parts.keys.hidden;
    this.parts.buttons.keys.setAttribute("aria-expanded", String(!this.parts.keys.hidden));
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
      this.parts.root.dataset.window = this.shown().map((ms) => ms.toFixed(4)).join("-");
      this.parts.root.dataset.drawMs = (performance.now() - began).toFixed(1);
    }
    const { lane, box, pointed, cursor } = this;
    const context = sized(this.parts.overlay, this.layout);
    drawOverlay(context, timeline, this.layout, this.shown(), colours, { lane, box, pointed, cursor });
    this.parts.root.dataset.cursor = cursor === null ? "" : cursor.toFixed(4);
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
