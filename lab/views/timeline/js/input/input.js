// Keys, wheel, pointer and buttons, as calls of the timeline's actions.

const DRAG = 4; // pixels from which a press is a drag

/** Listens on the parts of a timeline. Returns what stops listening. */
export function listen(parts, act) {
  const stop = new AbortController();
  const on = (target, name, handle, more = {}) => target.addEventListener(name, handle, { signal: stop.signal, ...more });
  on(parts.plot, "keydown", (event) => key(event, act));
  on(parts.plot, "wheel", (event) => wheel(event, act), { passive: false });
  pointer(parts, act, on);
  on(parts.buttons.in, "click", () => act.zoom(0.5));
  on(parts.buttons.out, "click", () => act.zoom(2));
  on(parts.buttons.fit, "click", () => act.fit());
  on(parts.buttons.play, "click", () => act.play());
  on(parts.buttons.keys, "click", () => act.keys());
  on(parts.buttons.save, "click", () => act.save());
  return () => stop.abort();
}

const ACTIONS = {
  w: (act) => act.zoom(0.6), "+": (act) => act.zoom(0.6), "=": (act) => act.zoom(0.6),
  s: (act) => act.zoom(1 / 0.6), "-": (act) => act.zoom(1 / 0.6), "−": (act) => act.zoom(1 / 0.6),
  a: (act) => act.pan(-0.2), d: (act) => act.pan(0.2), f: (act) => act.fit(),
  arrowleft: (act) => act.stepOp(-1), ",": (act) => act.stepOp(-1),
  arrowright: (act) => act.stepOp(1), ".": (act) => act.stepOp(1),
  arrowup: (act) => act.stepRank(-1), arrowdown: (act) => act.stepRank(1),
  home: (act) => act.edge(false), end: (act) => act.edge(true), enter: (act) => act.zoomToOp(),
  " ": (act) => act.play(), escape: (act) => act.clear(), "?": (act) => act.keys(),
};

function key(event, act) {
  if (event.ctrlKey || event.metaKey || event.altKey) return; // the browser's own
  const action = ACTIONS[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  action(act);
}

/** With Ctrl or ⌘ the wheel zooms; sideways it moves. Otherwise the page scrolls as everywhere. */
function wheel(event, act) {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    act.zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) * 0.005), event.offsetX);
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && act.pan(event.deltaX / 800)) {
    event.preventDefault();
  }
}

function pointer(parts, act, on) {
  let press = null;
  on(parts.plot, "pointerdown", (event) => {
    if (event.button) return;
    press = { x: event.offsetX, last: event.offsetX, dragged: false, id: event.pointerId };
  });
  on(parts.plot, "pointermove", (event) => {
    if (!press) return act.point(event.offsetX, event.offsetY);
    if (!press.dragged && Math.abs(event.offsetX - press.x) >= DRAG) {
      press.dragged = true;
      parts.plot.setPointerCapture(press.id);
    }
    if (!press.dragged) return undefined;
    act.drag(press.last - event.offsetX);
    press.last = event.offsetX;
    return undefined;
  });
  on(parts.plot, "pointerup", (event) => {
    if (press && !press.dragged) act.choose(event.offsetX, event.offsetY);
    press = null;
  });
  on(parts.plot, "pointercancel", () => { press = null; });
  on(parts.plot, "pointerleave", () => act.point(null, null));
  on(parts.plot, "dblclick", () => act.zoomToOp());
}
