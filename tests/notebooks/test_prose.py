"""What can be checked of the notebooks without running them."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from notebooks.build import HERE, NAVIGATION, Source, sources

SOURCES = sources()
NOTEBOOKS = sorted(HERE.glob("*.ipynb"))
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
of_each_source = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
of_each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def prose(source: Source) -> list[str]:
    return [cell.source for cell in source.cells if cell.cell_type == "markdown"]


def test_the_notebooks_are_numbered_from_00_without_a_gap() -> None:
    assert [source.name[:2] for source in SOURCES] == [f"{number:02d}" for number in range(len(SOURCES))]


@of_each_source
def test_a_notebook_has_one_title_with_its_number(source: Source) -> None:
    titles = [line for text in prose(source) for line in text.splitlines() if line.startswith("# ")]
    assert titles == [f"# {source.title}"]
    assert source.title.startswith(f"{source.name[:2]} · ")


@of_each_source
def test_a_notebook_takes_20_minutes_at_most(source: Source) -> None:
    assert 0 < source.minutes <= 20


@of_each_source
def test_a_notebook_closes_with_three_questions(source: Source) -> None:
    asked = prose(source)[-1].partition("## Three questions\n")[2].split("<summary>Answers")[0]
    assert re.findall(r"^(?:<details><summary>|\*\*)?(\d)\. ", asked, re.MULTILINE) == ["1", "2", "3"]


@of_each_notebook
def test_a_notebook_holds_no_output(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@of_each_notebook
def test_every_link_leads_to_a_file_that_is_there_and_no_picture_comes_from_elsewhere(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "markdown":
            continue
        assert not re.search(r"<(img|script|iframe|link)\b", cell.source)
        for target in LINK.findall(cell.source):
            if not target.startswith("https://"):
                assert (HERE / target.split("#")[0]).is_file(), target
        assert not re.search(r"!\[[^\]]*\]\(https?:", cell.source)


@of_each_notebook
def test_a_notebook_begins_and_ends_with_navigation(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    generated = [number for number, cell in enumerate(cells) if NAVIGATION in cell.metadata.get("tags", [])]
    assert generated == ([1] if path.stem == "index" else [0, len(cells) - 1])
