// Shows a timeline in a Streamlit page. Streamlit calls this again whenever the data or its theme changes.

import { mount } from "./timeline.js";

const QUIET_MS = 300; // a moved cursor or window is told once it has come to rest: telling runs the page's script again

const mounted = new WeakMap();

function show({ data, parentElement, setStateValue }) {
  if (!mounted.has(parentElement)) mounted.set(parentElement, start(parentElement, setStateValue));
  const { timeline, told } = mounted.get(parentElement);
  const { data: drawn, stamp, ...options } = data;
  const fresh = Object.entries(options).filter(([name, value]) => told[name] === undefined || !(name in told) || value !== told[name]);
  timeline.update({ ...Object.fromEntries(fresh), ...(stamp === told.stamp ? {} : { data: drawn }) });
  told.stamp = stamp;
  return () => {
    mounted.delete(parentElement);
    timeline.destroy();
  };
}

export default show;
