"""Makes the notebooks from their sources: `python -m notebooks.build`, or with `--check` says which are out of date.

A source is `NN_name.py`, in jupytext's percent format. Its first cell is Markdown: a line `# Title`, then a sentence
that goes into the index, and somewhere the time it takes, as in "15 minutes". From it comes `NN_name.ipynb` without
outputs, with links to the notebooks before and after it in a first and a last cell, which only the .ipynb has.
`index.py` becomes `index.ipynb`, with the table of all notebooks under its first cell. The same sources make the same
bytes.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

HERE = Path(__file__).parent
INDEX = "index"
NAVIGATION = "navigation"  # the tag of what is made here and in no source
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


class SourceError(ValueError):
    """A source lacks something that the notebook made from it needs. One sentence, beginning with its name."""


@dataclass(frozen=True)
class Source:
    """A notebook as its author wrote it, and what its first cell says of it."""

    name: str  # without ending
    title: str
    about: str  # one sentence
    minutes: int
    cells: tuple[NotebookNode, ...]


def sources(folder: Path = HERE) -> list[Source]:
    """The numbered sources in `folder`, in order. Raises `SourceError`."""
    return [_source(path) for path in sorted(folder.glob("[0-9][0-9]_*.py"))]


def _source(path: Path) -> Source:
    cells = _cells(path)
    first = cells[0].source if cells and cells[0].cell_type == "markdown" else ""
    title = re.match(r"# (\S.*)", first)
    if not title:
        raise SourceError(f"{path.name}: begin with a Markdown cell whose first line is “# ” and the title.")
    prose = [" ".join(part.split()) for part in first[title.end() :].split("\n\n") if part.strip()]
    about = re.match(r"(?![#|!<*-] ?)(.+?[.?!])(?=\s+[^a-z]|$)", prose[0]) if prose else None
    if not about:
        raise SourceError(f"{path.name}: put a sentence under the title, for the index.")
    minutes = re.search(r"\b(\d+) minutes", first)
    if not minutes:
        raise SourceError(f"{path.name}: say in the first cell how long it takes, as in “15 minutes”.")
    return Source(path.stem, title[1].strip(), about[1], int(minutes[1]), cells)


def _cells(path: Path) -> tuple[NotebookNode, ...]:
    return tuple(jupytext.read(path, fmt="py:percent").cells)


def build(folder: Path = HERE) -> dict[str, str]:
    """What every .ipynb in `folder` should hold, by file name. Raises `SourceError`."""
    found = sources(folder)
    made = {f"{source.name}.ipynb": _notebook([*source.cells], links(found, at)) for at, source in enumerate(found)}
    if (index := folder / f"{INDEX}.py").exists():
        first, *rest = _cells(index)
        made[f"{INDEX}.ipynb"] = _notebook([first, _generated(contents(found)), *rest])
    return made


def links(found: list[Source], at: int) -> str:
    """Markdown: to the notebook before number `at`, to the index, and to the one after it."""
    parts = [f"[Index]({INDEX}.ipynb)"]
    if at > 0:
        parts.insert(0, f"[← {found[at - 1].title}]({found[at - 1].name}.ipynb)")
    if at + 1 < len(found):
        parts.append(f"[{found[at + 1].title} →]({found[at + 1].name}.ipynb)")
    return " · ".join(parts)


def contents(found: list[Source]) -> str:
    """Markdown: a table with a row for each notebook."""
    rows = [f"| [{one.title}]({one.name}.ipynb) | {one.about} | {one.minutes} |" for one in found]
    return "\n".join(["| Notebook | What it is about | Minutes |", "|:--|:--|--:|", *rows])


def _notebook(cells: list[NotebookNode], navigation: str = "") -> str:
    if navigation:
        cells = [_generated(navigation), *cells, _generated(navigation)]
    metadata: dict[str, Any] = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    made = nbformat.v4.new_notebook(cells=[_clean(cell, at) for at, cell in enumerate(cells)], metadata=metadata)
    nbformat.validate(made)
    return str(nbformat.writes(made)) + "\n"


def _clean(cell: NotebookNode, at: int) -> NotebookNode:
    """A copy that depends on nothing but the source, whatever it was when it was last run."""
    kept = NotebookNode(cell | {"id": f"cell-{at:03d}"})
    if kept.cell_type == "code":
        kept.outputs, kept.execution_count = [], None
    return kept


def _generated(source: str) -> NotebookNode:
    made: NotebookNode = new_markdown_cell(source, metadata={"tags": [NAVIGATION]})
    return made


def out_of_date(folder: Path = HERE) -> list[str]:
    """The names of notebooks that are not what their sources make, missing and left-over ones included."""
    made = build(folder)
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.ipynb")}
    return sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))


def main(argv: list[str] | None = None, folder: Path = HERE) -> int:
    """Exit status: 0 done; 1 `--check` found notebooks out of date; 2 a source lacks something."""
    parser = argparse.ArgumentParser(prog="python -m notebooks.build", description="Make the notebooks.")
    parser.add_argument("--check", action="store_true", help="write nothing; say what is out of date")
    args = parser.parse_args(argv)
    try:
        stale = out_of_date(folder)
    except SourceError as error:
        print(error, file=sys.stderr)
        return 2
    if args.check:
        for name in stale:
            print(f"{name} is not what its source makes: run `make notebooks`.", file=sys.stderr)
        return int(bool(stale))
    made = build(folder)
    for name in stale:
        path = folder / name
        path.write_text(made[name], encoding="utf-8") if name in made else path.unlink()
        print(f"{name}: {'made' if name in made else 'removed, it has no source'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
