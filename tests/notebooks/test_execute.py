"""A notebook runs without a browser too, and leaves no process behind.

Those of the learner run in JupyterLab (`tests/browser/test_notebooks.py`), each once. What could be different where
nobody draws the widgets is in one notebook here, with one of each.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import psutil
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import lab
from tests.browser import sample

CELL_SECONDS = 120  # for real runs on a busy machine; none should take a tenth of it
ASKS = """lab.predict("sample", "Of two losses, which is lower?", choices={"first": "No.", "last": "Yes."},
    truth=lambda run: "last", run=lambda: run)"""
CHECKS = """def ring_all_reduce(*_):
    raise NotImplementedError
lab.check("ring_all_reduce", ring_all_reduce)"""


def surroundings(folder: Path) -> dict[str, str]:
    """Of a kernel: this `lab`, a store of its own, and nothing of the user's."""
    home = {name: str(folder / name) for name in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    ours = {"SHARDLAB_RUNS": str(folder / "runs"), "PYTHONPATH": str(Path(lab.__file__).parent.parent)}
    return os.environ | home | ours


def execute(notebook: nbformat.NotebookNode, folder: Path) -> list[str]:
    """Runs all cells. The errors in their outputs, each with the number and the first line of its cell."""
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", allow_errors=True, force_raise_errors=False,
        resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    client.execute(env=surroundings(folder))
    return [
        f"cell {number} ({cell.source.splitlines()[0]}): {output.ename}: {output.evalue}"
        for number, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    ]


def children() -> set[Any]:
    return set(psutil.Process().children(recursive=True))


def test_every_kind_of_cell_runs_without_a_browser_and_one_that_raises_is_named(tmp_path: Path) -> None:
    before = children()
    sources = (sample.RUNS, sample.EXPLORES, ASKS, CHECKS, "x = 1\nx / 0", "x + 1")
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    assert execute(notebook, tmp_path) == ["cell 4 (x = 1): ZeroDivisionError: division by zero"]
    assert all(cell.execution_count for cell in notebook.cells), "the cells after one that raises run too"
    assert all(cell.outputs for cell in notebook.cells)
    _, alive = psutil.wait_procs(children() - before, timeout=20)
    assert alive == []
