"""Every notebook runs from top to bottom without a browser, and leaves no process behind.

They share one run store, as those of a learner do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

import lab
from notebooks.build import build

NOTEBOOKS = build()
CELL_SECONDS = 120  # for real runs on a busy machine; none should take a tenth of it


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def surroundings(store: Path, tmp_path: Path) -> dict[str, str]:
    """Of a kernel: this `lab`, a store of its own, and nothing of the user's."""
    home = {name: str(tmp_path / name) for name in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    return os.environ | home | {"SHARDLAB_RUNS": str(store), "PYTHONPATH": str(Path(lab.__file__).parent.parent)}


def execute(notebook: nbformat.NotebookNode, folder: Path, surroundings: dict[str, str]) -> list[str]:
    """Runs all cells. The errors in their outputs, each with the number and the first line of its cell."""
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", allow_errors=True, force_raise_errors=False,
        resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    client.execute(env=surroundings)
    return [
        f"cell {number} ({cell.source.splitlines()[0]}): {output.ename}: {output.evalue}"
        for number, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    ]


def children() -> set[Any]:
    return set(psutil.Process().children(recursive=True))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path, surroundings: dict[str, str]) -> None:
    before = children()
    notebook = nbformat.reads(NOTEBOOKS[name], as_version=4)
    assert execute(notebook, tmp_path, surroundings) == []
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source]
    assert all(cell.execution_count for cell in code)
    _, alive = psutil.wait_procs(children() - before, timeout=20)
    assert alive == []


def test_a_cell_that_raises_is_named(tmp_path: Path, surroundings: dict[str, str]) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in ("1 + 1", "x = 1\nx / 0", "x + 1")]
    found = execute(nbformat.v4.new_notebook(cells=cells), tmp_path, surroundings)
    assert found == ["cell 1 (x = 1): ZeroDivisionError: division by zero"]
