// Shows a timeline in a Streamlit page. Streamlit calls this again whenever the data or its theme changes.

import { mount } from "./timeline.js";

const QUIET_MS = 300; // a moved cursor or window is told once it rests: telling runs the page's script again

const shown = new WeakMap();

function show({ data, parentElement, setStateValue }) {
  const { drawn, stamp, ...options } = data;
  const known = shown.get(parentElement) ?? { told: {}, timeline: null };
  shown.set(parentElement, Object.assign(known, { setStateValue }));
  // only what the page's script says anew: repeating itself must not undo what the reader chose since
  const fresh = Object.entries(options).filter(([name, value]) => JSON.stringify(value) !== known.told[name]);
  const changes = Object.fromEntries(fresh);
  if (stamp !== known.stamp) changes.data = drawn;
  for (const [name, value] of fresh) known.told[name] = JSON.stringify(value);
  known.stamp = stamp;
  if (known.timeline) known.timeline.update(changes);
  else known.timeline = mount(parentElement.querySelector(".timeline-host"), { ...changes, ...listeners(known) });
  known.timeline.repaint();
  return () => {
    shown.delete(parentElement);
    known.timeline.destroy();
  };
}

function listeners(known) {
  const timers = {};
  const rested = (name) => (value) => {
    clearTimeout(timers[name]);
    timers[name] = setTimeout(() => known.setStateValue(name, value), QUIET_MS);
  };
  return {
    onSelect: (chosen) => known.setStateValue("selected", chosen),
    onWindow: rested("window"),
    onCursor: rested("cursor_ms"),
  };
}

export default show;
