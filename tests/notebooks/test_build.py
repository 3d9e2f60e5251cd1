"""The notebooks and their sources agree, and the tool that makes them does as it says."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from notebooks import build

SOURCE = """# %% [markdown]
# # {title}
#
# Where the bytes go, in GB,
# and why. Then more.
#
# About {minutes} minutes.

# %%
1 + 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, title, minutes in (("00_one", "One", 5), ("01_two", "Two", 12), ("02_three", "Three", 20)):
        (tmp_path / f"{name}.py").write_text(SOURCE.format(title=title, minutes=minutes), encoding="utf-8")
    (tmp_path / "index.py").write_text("# %% [markdown]\n# # Index\n\n# %% [markdown]\n# The end.\n", encoding="utf-8")
    return tmp_path


def cells(path: Path) -> list[nbformat.NotebookNode]:
    return list(nbformat.read(path, as_version=4).cells)


def test_every_notebook_is_what_its_source_makes() -> None:
    assert build.out_of_date() == []


def test_a_notebook_begins_and_ends_with_links_to_its_neighbours(folder: Path) -> None:
    assert build.main([], folder) == 0
    links = "[← One](00_one.ipynb) · [Index](index.ipynb) · [Three →](02_three.ipynb)"
    two = cells(folder / "01_two.ipynb")
    assert [two[0].source, two[-1].source] == [links, links]
    assert cells(folder / "00_one.ipynb")[0].source == "[Index](index.ipynb) · [Two →](01_two.ipynb)"
    assert cells(folder / "02_three.ipynb")[-1].source == "[← Two](01_two.ipynb) · [Index](index.ipynb)"


def test_the_index_lists_every_notebook_with_its_first_sentence_and_minutes(folder: Path) -> None:
    build.main([], folder)
    head, table, rest = cells(folder / "index.ipynb")
    assert (head.source, rest.source) == ("# Index", "The end.")
    assert "| [Two](01_two.ipynb) | Where the bytes go, in GB, and why. | 12 |" in table.source.splitlines()
    assert table.source.count(".ipynb") == 3


def test_what_was_run_is_made_clean_again_byte_for_byte(folder: Path) -> None:
    build.main([], folder)
    path = folder / "01_two.ipynb"
    clean = path.read_bytes()
    used = nbformat.read(path, as_version=4)
    used.cells[2].update(execution_count=3, outputs=[nbformat.v4.new_output("stream", text="2")])
    nbformat.write(used, path)
    assert build.main(["--check"], folder) == 1
    assert path.read_bytes() != clean, "--check writes nothing"
    assert build.main([], folder) == 0
    assert path.read_bytes() == clean


def test_a_notebook_without_a_source_is_out_of_date_and_goes(folder: Path) -> None:
    build.main([], folder)
    (folder / "01_two.py").unlink()
    assert build.out_of_date(folder) == ["00_one.ipynb", "01_two.ipynb", "02_three.ipynb", "index.ipynb"]
    build.main([], folder)
    assert not (folder / "01_two.ipynb").exists()
    assert build.out_of_date(folder) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 + 1\n", "01_two.py: begin with a Markdown cell whose first line is “# ” and the title."),
        ("# %% [markdown]\n# # Two\n", "01_two.py: put a sentence under the title, for the index."),
        ("# %% [markdown]\n# # Two\n#\n# All of it.\n", "01_two.py: say in the first cell how long it takes"),
    ],
)
def test_a_source_that_lacks_something_is_refused_in_words(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (folder / "01_two.py").write_text(text, encoding="utf-8")
    assert build.main([], folder) == 2
    assert capsys.readouterr().err.startswith(words)
    assert not list(folder.glob("*.ipynb"))
