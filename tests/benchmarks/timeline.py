"""How fast the timeline paints and zooms in a browser, beside a plotly figure of the same boxes: a ratio, for absolute
times depend on the machine. It needs Chromium.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import plotly.io
from playwright.sync_api import Page, sync_playwright
from plotly.offline import get_plotlyjs

from engine.job.job import Job
from engine.job.mesh import mesh_of
from lab.analysis import step_ops
from lab.views.figures.style.palette import palette
from lab.views.figures.timeline.lanes import boxes, lay_out
from lab.views.figures.timeline.timeline import bars
from lab.views.timeline import module, portable, timeline_data
from tests.benchmarks.row import Row
from tests.browser.chromium import PATH, QUIET
from tests.lab.synthetic import LIFELIKE, synthetic

MICROBATCHES = (3, 12, 48)  # about 5,000, 20,000 and 80,000 boxes on 64 ranks
ZOOMS = 6

_PAGE = """<!doctype html><meta charset="utf-8"><body><div id="host" style="width:1000px"></div>
<script>{plotly}</script>
<script type="module">{module}
window.mount = mount;</script>
<script type="module">
const data = {data}, figure = {figure};
const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
async function timed(what) {{
  const began = performance.now();
  await what();
  await frame();
  return performance.now() - began;
}}
const host = document.getElementById("host");
window.canvas = async () => {{
  let shown;
  const paint = await timed(() => {{ shown = mount(host, {{ data }}); }});
  const drawing = [], zooms = [];
  for (let i = 1; i <= {zooms}; i++) {{
    const end = data.layers[0].length / 1.7 ** i;
    zooms.push(await timed(() => shown.update({{ window: [end * 0.1, end] }})));
    drawing.push(Number(host.firstChild.dataset.drawMs));
  }}
  shown.destroy();
  return {{ paint, zooms, drawing }};
}};
window.plotly = async () => {{
  const paint = await timed(() => Plotly.newPlot(host, figure.data, figure.layout));
  const end = data.layers[0].length / 1.7;
  return {{ paint, zooms: [await timed(() => Plotly.relayout(host, {{ "xaxis.range": [end * 0.1, end] }}))] }};
}};
window.ready = true;
</script>"""


def page_of(microbatches: int, folder: Path) -> tuple[Path, int, float]:
    """(a page with both, how many boxes, ms it took to pack them)."""
    job = Job.from_options(dp=4, tp=4, pp=4, layers=16, microbatches=microbatches, batch=4 * microbatches)
    recording = synthetic(job, LIFELIKE, steps=1)
    ops = step_ops(recording, 0)
    began = time.perf_counter()
    data = timeline_data(recording, job, 0)
    packed = (time.perf_counter() - began) * 1e3
    p = palette("light")
    traces = bars(boxes(lay_out(ops, mesh_of(job)), p), p, "light")
    figure = plotly.io.to_json({"data": traces, "layout": {"barmode": "overlay", "height": 1200, "width": 1000}})
    text = _PAGE.format(
        plotly=get_plotlyjs(), module=module(), data=json.dumps(portable(data)), figure=figure, zooms=ZOOMS
    )
    path = folder / f"{microbatches}.html"
    path.write_text(text, encoding="utf-8")
    return path, data["layers"][0]["count"], packed


def measure(page: Page, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    page.goto(path.as_uri())
    page.wait_for_function("window.ready")
    return page.evaluate("canvas()"), page.evaluate("plotly()")


def measured(rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=QUIET)
        for microbatches in MICROBATCHES:
            path, count, _ = page_of(microbatches, Path(folder))
            found = [measure(browser.new_page(), path) for _ in range(rounds)]
            paints = [(ours["paint"] / 1e3, theirs["paint"] / 1e3) for ours, theirs in found]
            zooms = [(median(ours["zooms"]) / 1e3, median(theirs["zooms"]) / 1e3) for ours, theirs in found]
            yield Row.of(f"painting {count:,} boxes", "plotly", paints)
            yield Row.of(f"a zoom into {count:,} boxes", "plotly", zooms)
        browser.close()
