"""A small notebook with everything that the browser's driver must handle, for the test of the driver itself."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

RUNS = """import lab
run = lab.run(dp=2, steps=1)
lab.view(run, "memory")"""
EXPLORES = """lab.explore(
    knobs=("dp", "microbatches"), views=("timeline", "communication"), cluster="toy-2x4", dp=2, steps=1
)"""
LONG = 'lab.explore(knobs=("dp",), views=("timeline",), cluster="toy-2x4", steps=100_000)'
RAISES = "1 / 0"
SHOUTS = """from IPython.display import HTML
HTML('<img src="https://example.invalid/a.png"><button></button><script>console.error("heard")</script>')"""


def write(path: Path, *code: str) -> None:
    """A notebook with these code cells below a title."""
    cells = [new_markdown_cell("# Sample"), *(new_code_cell(one) for one in code)]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
