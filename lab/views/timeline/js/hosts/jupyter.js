// Shows a timeline in a notebook: every option is a trait of lab.timeline.TimelineWidget.

import { mount } from "./timeline.js";

const TRAITS = {
  data: "data", theme: "theme", label: "label", group: "group", selected_rank: "selectedRank",
  selected_op: "selectedOp", cursor_ms: "cursorMs", window: "window",
};
const QUIET_MS = 150; // the kernel hears where a moving cursor and window are this often

function render({ model, el }) {
  let end = () => {};
  const begin = () => {
    if (!Object.keys(model.get("data")).length) return; // the step is still on its way
    model.off("change:data", begin);
    end = show(model, el);
  };
  model.on("change:data", begin);
  begin();
  return () => {
    model.off("change:data", begin);
    end();
  };
}

function show(model, el) {
  const send = throttled(() => model.save_changes());
  const put = (changes) => {
    for (const [trait, value] of Object.entries(changes)) model.set(trait, value);
    send();
  };
  el.addEventListener("keydown", (event) => event.stopPropagation()); // from JupyterLab's command mode
  const timeline = mount(el, {
    ...Object.fromEntries(Object.entries(TRAITS).map(([trait, option]) => [option, model.get(trait)])),
    onSelect: ({ rank, op }) => put({ selected_rank: rank, selected_op: op }),
    onWindow: (window) => put({ window }),
    onCursor: (time) => put({ cursor_ms: time }),
  });
  const follow = together((names) => {
    timeline.update(Object.fromEntries(names.map((trait) => [TRAITS[trait], model.get(trait)])));
  });
  for (const trait of Object.keys(TRAITS)) model.on(`change:${trait}`, () => follow(trait));
  return () => timeline.destroy();
}

/** Collects what changes in one message of the kernel, so that rank and operation are heard of together. */
function together(call) {
  const names = new Set();
  return (name) => {
    if (!names.size) {
      queueMicrotask(() => {
        const all = [...names];
        names.clear();
        call(all);
      });
    }
    names.add(name);
  };
}

function throttled(call) {
  let timer = 0;
  let again = false;
  const later = () => {
    timer = 0;
    if (!again) return;
    again = false;
    call();
    timer = setTimeout(later, QUIET_MS);
  };
  return () => {
    if (timer) again = true;
    else {
      call();
      timer = setTimeout(later, QUIET_MS);
    }
  };
}

export default { render };
