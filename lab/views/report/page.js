// Draws every figure of the page, in the colours the reader's system asks for.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const config = { displaylogo: false, showSendToCloud: false, responsive: true, scrollZoom: false };

  function spec(name) {
    const found = JSON.parse(document.getElementById("spec-" + name).textContent);
    if (dark.matches) {
      for (const [path, value] of found.dark) {
        const last = path.pop();
        path.reduce((at, key) => at[key], found)[last] = value;
      }
    }
    return found;
  }

  async function drawAll() {
    for (const box of document.querySelectorAll(".plot")) {
      const { data, layout } = spec(box.id.slice("plot-".length));
      try {
        await Plotly.react(box, data, layout, config);
      } catch (error) { // one figure that this browser cannot draw must not take the others along
        box.textContent = "This browser could not draw the figure: " + error.message;
      }
      await new Promise((resolve) => setTimeout(resolve)); // let the page answer in between
    }
    document.documentElement.dataset.drawn = dark.matches ? "dark" : "light";
  }

  let last = drawAll();
  dark.addEventListener("change", () => { last = last.then(drawAll); });
})();
