// Shows the timelines of a report: each `.timeline` box names the script element that holds its data.

import { mount } from "./timeline.js";

for (const box of document.querySelectorAll(".timeline")) {
  const { data, options } = JSON.parse(document.getElementById(box.dataset.spec).textContent);
  mount(box, { data, ...options });
}
