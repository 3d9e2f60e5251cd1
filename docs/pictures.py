"""Makes the pictures of the README: `python -m docs.pictures` (needs Chromium and the test extras).

Each is what a cell shows in JupyterLab, of a real run made here and now, on light and dark pages.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from playwright.sync_api import Locator, sync_playwright

from tests.browser.chromium import QUIET
from tests.browser.jupyter import Lab, Server

IMAGES = Path(__file__).parent / "images"
GALLERY = "gallery.ipynb"
RUNS = """import lab
from lab import figures
lab.run(dp=2, tp=2, pp=2, zero=1)  # the first run pays for starting up
cube = lab.run(dp=2, tp=2, pp=2, zero=1, steps=5)
pipe = lab.run(pp=4, layers=8, microbatches=8, steps=2)
stages = [lab.run(dp=4, zero=zero, steps=2) for zero in range(4)]
"""
VIEWS = {
    "explorer": "lab.explore(knobs=('dp', 'tp', 'pp', 'microbatches', 'zero', 'link_speed'), dp=2, tp=2, pp=2,"
    " views=('timeline',))",
    "timeline": "lab.view(cube, 'timeline')",
    "predicted": "lab.view(cube.replay('toy-2x4'), 'timeline', predicted=lab.simulate(dp=2, tp=2, pp=2, zero=1))",
    "grid": "lab.view(cube, 'grid', rank=5)",
    "memory": "lab.view(cube, 'memory')",
    "zero": "lab.picture(figures.memory_by_zero, stages)",
    "bubble": "lab.view(pipe.replay('toy-2x4'), 'bubble')",
    "schedules": "lab.view(pipe, 'schedules')",
    "shards": "lab.view(cube, 'shards', rank=1)",
    "matrix": "lab.view(cube, 'matrix')",
    "question": "lab.predict('picture', 'GPipe on 4 ranks with 4 micro-batches: which part of all time is idle?',"
    " choices={'1/4': '', '3/7': '', '3/4': 'That is the ratio idle ÷ work.'}, truth=lambda run: '3/7',"
    " run=lambda: pipe)",
    "compare": "lab.compare(stages[0], stages[3])",
}
_MEASURED = "() => document.querySelector('.shardlab-explorer')?.dataset.state === 'measured'"
_DRAWN = "() => [...document.querySelectorAll('.shardlab-plot')].every(plot => plot.dataset.drawn !== undefined)"


def main(names: list[str]) -> None:
    chosen = {name: VIEWS[name] for name in names} if names else VIEWS
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server.start(Path(folder) / "notebooks")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        try:
            _write(server.folder / GALLERY, [RUNS, *chosen.values()])
            lab = Lab(browser, server)
            lab.page.set_viewport_size({"width": 1200, "height": 2000})
            lab.open(GALLERY)
            lab.command("application:toggle-left-area")
            lab.run_all()
            assert lab.errors() == []
            for theme in ("light", "dark"):
                lab.theme(theme)
                _take(lab, list(chosen), theme)
        finally:
            browser.close()
            server.stop()


def _write(path: Path, cells: list[str]) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


def _take(lab: Lab, names: list[str], theme: str) -> None:
    for i, name in enumerate(names):
        lab.page.evaluate("i => jupyterapp.shell.currentWidget.content.scrollToItem(i, 'start')", i + 1)
        shown: Locator = lab.page.locator(f".jp-Cell[data-windowed-list-index='{i + 1}'] .jp-OutputArea-output").first
        shown.scroll_into_view_if_needed()
        lab.page.wait_for_function(_DRAWN)
        if name == "explorer":
            lab.page.wait_for_function(_MEASURED)
        lab.page.wait_for_timeout(1500)  # the 3D grid draws after it says so
        shown.screenshot(path=IMAGES / f"{name}-{theme}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
