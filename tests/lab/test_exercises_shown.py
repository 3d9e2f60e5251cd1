"""What a learner sees of exercises: statements, hints, solutions, verdicts."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import lab
from lab.learning.exercises import NAMES, find
from lab.learning.exercises.verdict import Verdict


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_a_task_has_its_statement_the_code_to_fill_in_and_how_to_try_it(name: str) -> None:
    text = lab.task(name).markdown
    assert f"```python\n{find(name).blank.strip()}\n```" in text
    assert f"lab.check('{name}'" in text
    assert f"def {name}(" in text


@pytest.mark.parametrize("name", NAMES)
def test_hints_lead_on_and_end(name: str) -> None:
    hints = find(name).hints
    assert len(hints) >= 2
    assert f"lab.hint('{name}', 2)" in lab.hint(name).markdown
    assert "For more" not in lab.hint(name, len(hints)).markdown
    for number in (0, len(hints) + 1):
        with pytest.raises(ValueError, match=f"{name} has hints 1 to {len(hints)}"):
            lab.hint(name, number)


@pytest.mark.parametrize("name", NAMES)
def test_no_hint_holds_the_solution(name: str) -> None:
    lines = [line.strip() for line in lab.solution(name).markdown.splitlines()[1:-1] if len(line.strip()) > 25]
    assert not [line for line in lines for hint in find(name).hints if line in hint]


def test_the_nearest_name_is_told_where_there_is_no_such_exercise() -> None:
    with pytest.raises(ValueError, match="did you mean 'schedule_1f1b'"):
        lab.solution("schedule_1f1")


def test_the_table_lists_all_in_order_with_words_for_done_or_not() -> None:
    rows = lab.exercises().markdown.splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(NAMES)
    assert all("○ open" in row for row in rows)


def test_a_verdict_is_said_in_words_and_not_by_colour_alone() -> None:
    good, bad = Verdict("a", True, "fine"), Verdict("a", False, "On rank 1 <b>\n  grid")
    assert repr(good) == "✔ passed: a\nfine"
    assert "✔ passed" in good._repr_html_() and "✘ not yet" in bad._repr_html_()
    assert 'role="status"' in bad._repr_html_()
    assert "On rank 1 &lt;b&gt;" in bad._repr_html_() and "<pre" in bad._repr_html_()
    with pytest.raises(dataclasses.FrozenInstanceError):
        good.passed = False


def test_a_score_is_a_table_with_headings() -> None:
    rows = [{"schedule": "yours", "slots": 27, "ratio": 1 / 3}, {"schedule": "1f1b", "slots": 33, "ratio": 2.0}]
    verdict = Verdict("own_schedule", True, "fine", {"score": rows})
    assert "schedule  slots  ratio\nyours        27  0.333\n1f1b         33      2" in repr(verdict)

    class Count(HTMLParser):
        heads = cells = 0

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.heads += tag == "th" and ("scope", "col") in attrs
            self.cells += tag == "td"

    count = Count()
    count.feed(verdict._repr_html_())
    assert (count.heads, count.cells) == (3, 6)


def test_importing_the_lab_and_listing_exercises_loads_no_torch() -> None:
    code = "import lab, sys; lab.exercises(); lab.task('ring_all_reduce'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
