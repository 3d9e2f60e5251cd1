"""The report as a file: what it says, that it says it safely, and that it needs nothing else."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from plotly.offline import get_plotlyjs

from engine.job.job import Job
from lab.cli.options import Parser, add_job_options, job_of
from lab.verdict import RULE_IN_WORDS
from lab.views.figures.style.dual_theme import differences
from lab.views.report import report_html, write_report
from lab.views.report.html import Html, escape, tag
from lab.views.report.words import DEFINITIONS, job_in_words
from lab.wording import RESIDENT, command_line
from tests.lab.fake_run import FakeInfo, FakeRun, fake_run

CUBE = Job.from_options(dp=2, tp=2, pp=2, zero=1)
VOID = {"meta", "link", "br"}


class Reader(HTMLParser):
    """Checks nesting and gathers what the tests ask about."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attrs)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data + " "


def page_of(run: FakeRun) -> str:
    """The report without the plotly library in it."""
    return report_html(run).replace(get_plotlyjs(), "")


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(fake_run(CUBE))


def test_the_report_says_what_ran_and_how_to_run_it_again(page: str) -> None:
    text = Reader(page).text
    assert "8 processes = 2 data × 2 tensor × 2 pipeline" in text
    assert "lab run --dp 2 --tp 2 --pp 2 --zero 1" in text


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dp": 2, "tp": 2, "pp": 2, "zero": 3, "overlap": False, "keep_gathered": True},
        {"pp": 2, "schedule": "interleaved", "chunks": 2, "layers": 8, "tied": True, "lr": 0.5},
        {"pp": 2, "partition": (1, 3), "text": "my notes; rm -rf.txt", "batch": 32},
    ],
)
def test_the_command_in_the_report_makes_the_same_job(options: dict[str, Any]) -> None:
    import shlex

    job = Job.from_options(**options)
    words = shlex.split(command_line(job))
    assert words[:2] == ["lab", "run"]
    parser = Parser()
    add_job_options(parser)
    assert job_of(parser.parse_args(words[2:])) == job


def test_the_report_shows_the_three_differences_beside_their_limits(page: str) -> None:
    text = Reader(page).text
    assert "✔ Equal to one process" in text
    for words in ("loss 8.7e-08 of 1.0e-05 allowed", "gradient norm 2.1e-07 of 1.0e-05", "weights 6.0e-08 of 1.0e-05"):
        assert words in text


def test_a_run_that_differs_says_so() -> None:
    run = fake_run(CUBE)
    run.summary["parity"]["state"] = "different"
    assert "✘ Differs from one process" in Reader(page_of(run)).text


def test_every_number_of_the_summary_stands_in_a_table(page: str) -> None:
    run, text = fake_run(CUBE), Reader(page).text
    for row in run.summary["communication"]:
        assert f"{row['logical_bytes']:,}" in text and f"{row['predicted_bytes']:,}" in text
    for row in run.summary["memory"]["per_rank"]:
        assert f"{row['total_peak']:,}" in text and f"predicted {row['total_peak'] - 2000:,}" in text
    for row in run.summary["steps"]:
        assert f"{row['loss']:.6f}" in text


def test_the_title_of_the_timeline_and_the_number_at_the_top_agree(page: str) -> None:
    measured = fake_run(CUBE).summary["bubble"]["measured"]
    shown = f"{100 * measured:.0f} %"
    text = Reader(page).text
    assert f"Bubble {shown} = idle ÷ total" in text
    assert re.search(rf"Bubble \(idle ÷ total\)\s+{shown}", text)


def test_every_definition_is_printed(page: str) -> None:
    text = Reader(page).text
    assert all(name in text and words in text for name, words in DEFINITIONS)


# -- one file that needs nothing else, and is safe


def test_the_page_names_no_address_outside_itself(page: str) -> None:
    assert "http:" not in page and "https:" not in page
    assert all(a.get("src") is None for _, a in Reader(page).tags)
    assert {a["href"] for name, a in Reader(page).tags if name == "link"} == {"data:,"}


def test_the_page_forbids_every_request(page: str) -> None:
    policy = next(a["content"] for n, a in Reader(page).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'")
    assert "connect-src" not in policy and "http" not in policy


def test_plotly_is_inside_exactly_once() -> None:
    assert report_html(fake_run(Job())).count(get_plotlyjs()) == 1


def test_nothing_a_run_carries_can_become_markup() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    job = Job.from_options(text=evil)
    info = FakeInfo(environment={"python": evil}, backend=evil, backend_reason=evil, created=evil)
    run = replace(fake_run(Job()), job=job, id=evil, status="failed", message=evil, info=info)
    page = page_of(run)
    assert "<script>alert" not in page and "<img" not in page
    assert (
        Counter(name for name, _ in Reader(page).tags)["script"]
        == Counter(name for name, _ in Reader(page_of(fake_run(Job()))).tags)["script"]
    )


def test_names_inside_figures_cannot_end_the_script_that_holds_them() -> None:
    run = fake_run(Job())
    names = ["</script><b>x</b>"] * run.recording.ops.num_rows
    ops = run.recording.ops
    at = ops.column_names.index("name")
    run = replace(run, recording=replace(run.recording, ops=ops.set_column(at, "name", [names])))
    assert "</script><b>x" not in page_of(run)


def test_only_text_made_here_is_taken_for_html() -> None:
    assert escape('<a href="x">') == "&lt;a href=&quot;x&quot;&gt;"
    assert tag("p", "1 < 2", Html("<br>"), class_='a"b') == '<p class="a&quot;b">1 &lt; 2<br></p>'


# -- structure


def test_headings_come_in_order_and_sections_have_names(page: str) -> None:
    levels = [int(name[1]) for name, _ in Reader(page).tags if re.fullmatch(r"h\d", name)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_ids_are_unique_and_every_link_has_its_target(page: str) -> None:
    tags = Reader(page).tags
    ids = [a["id"] for _, a in tags if "id" in a]
    assert len(ids) == len(set(ids))
    links = [a["href"] for name, a in tags if name == "a"]
    assert links and all(link is not None and link.removeprefix("#") in ids for link in links)


def test_every_figure_has_words_for_those_who_cannot_see_it_and_can_be_reached_by_keyboard(page: str) -> None:
    groups = [a for _, a in Reader(page).tags if a.get("role") == "group"]
    assert len(groups) == 6
    assert all(len(a["aria-label"] or "") > 40 and a["tabindex"] == "0" for a in groups)
    (timeline,) = timelines(page)  # its script makes the element, named and reached by keyboard: tests/browser
    assert timeline["data"]["summary"].startswith("Timeline of step 1: 8 ranks, ")


def timelines(page: str) -> list[Any]:
    """What the page hands to each timeline."""
    specs = re.findall(r'<script type="application/json" id="spec-[\w-]+">(.*?)</script>', page)
    return [spec for spec in map(json.loads, specs) if "options" in spec]


def test_setting_the_differences_turns_the_light_figure_into_the_dark_one() -> None:
    light = {"a": [{"c": 1}, {"c": 2}], "b": {"x": [1, 2]}, "same": "s"}
    dark = {"a": [{"c": 1}, {"c": 9}], "b": {"x": [1, 2, 3]}, "same": "s"}
    patch = differences(light, dark)
    assert patch == [(["a", 1, "c"], 9), (["b", "x"], [1, 2, 3])]
    turned: Any = copy.deepcopy(light)
    for path, value in patch:
        *way, last = path
        at = turned
        for key in way:
            at = at[key]
        at[last] = value
    assert turned == dark


def test_the_dark_figures_cost_few_bytes(page: str) -> None:
    specs = re.findall(r'<script type="application/json" id="spec-[\w-]+">(.*?)</script>', page)
    figures = [spec for spec in map(json.loads, specs) if "options" not in spec]
    assert len(figures) == 6
    for spec in figures:
        assert len(json.dumps(spec["dark"])) < 6000


# -- runs that did not go well, and small ones


def test_a_failed_run_without_a_step_says_why_and_has_no_empty_figures() -> None:
    run = fake_run(CUBE, steps=0, status="failed", message="rank 3 (data 1): out of memory\nin forward block1")
    run.summary["parity"] = dict.fromkeys(run.summary["parity"])
    reader = Reader(page_of(run))
    assert "This run failed after 0 of 3 steps" in reader.text
    assert "rank 3 (data 1): out of memory\nin forward block1" in reader.text
    assert "Not compared with one process" in reader.text
    assert [a["id"] for _, a in reader.tags if (a.get("id") or "").startswith("plot-")] == ["plot-grid"]


def test_a_stopped_run_shows_the_steps_it_made() -> None:
    run = fake_run(CUBE, steps=2, status="stopped")
    text = Reader(page_of(run)).text
    assert "This run was stopped after 2 of 3 steps" in text
    assert "Every step, 2 in all" in text


def test_one_process_has_a_report_too() -> None:
    text = Reader(page_of(fake_run(Job()))).text
    assert "Nothing was sent: one process has nobody to talk to." in text
    assert "by one process" in job_in_words(Job())


def test_without_parity_the_report_says_that_nothing_was_compared() -> None:
    run = fake_run(CUBE)
    run.summary["parity"] = dict.fromkeys(run.summary["parity"])
    assert "because parity was switched off" in Reader(page_of(run)).text


def test_a_run_whose_loss_became_no_number_has_a_report() -> None:
    run = fake_run(CUBE)
    run.summary["steps"][-1]["loss"] = None
    assert re.search(r"Loss\s+not a number\s+after 3 steps, from 5.5000", Reader(page_of(run)).text)


def test_resident_memory_stands_beside_the_ledger_with_its_definition() -> None:
    run = replace(fake_run(CUBE), info=FakeInfo(resident_bytes=(200_000_000, 300_000_000)))
    text = Reader(page_of(run)).text
    assert f"Whole processes: 200 MB to 300 MB resident. {RESIDENT}" in text and "rank 1: 300 MB" in text


def test_the_report_and_the_terminal_state_the_same_rule(page: str) -> None:
    assert RULE_IN_WORDS in Reader(page).text


def test_writing_replaces_the_old_report_whole_and_makes_missing_folders(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write_report(fake_run(Job()), path)
    path.write_text("old")
    assert write_report(fake_run(Job()), path) == path
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(path.parent.iterdir()) == [path]


def test_a_large_model_is_counted_in_billions() -> None:
    # 12·96·12288² + 13·96·12288 + (51200 + 2048)·12288 + 2·12288, tied: 174.6 billion (Narayanan et al. 2021, table 1)
    job = Job.from_options(layers=96, hidden=12288, heads=96, seq=2048, vocab=51200, tied=True)
    assert "A GPT of 174.6 billion parameters" in job_in_words(job, simulated=True)
