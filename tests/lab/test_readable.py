"""What stands in a run's folder is checked where it is read: it may be of another version, or edited."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.job.errors import Unknown
from engine.job.job import Job
from engine.recording.columns import MissingColumn
from lab.facade import Run, load
from lab.store.store import Store
from lab.store.stored_run import RunCorrupt
from lab.store.validation import check_summary, readable_job

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def copied(real_run: Run, tmp_path: Path) -> Path:
    """The folder of a real run, in a store of its own."""
    return Path(shutil.copytree(real_run.folder, tmp_path / "runs" / real_run.id))


def edit(folder: Path, name: str, change: Change) -> None:
    found = json.loads((folder / name).read_text())
    change(found)
    (folder / name).write_text(json.dumps(found))


def test_an_option_that_an_older_version_did_not_have_is_as_by_default() -> None:
    assert readable_job({"dp": 2, "batch": 32}) == Job.from_options(dp=2, batch=32).options()


def test_the_text_of_a_run_may_be_gone() -> None:
    assert readable_job({"text": "/gone/long/ago"})["text"] == "/gone/long/ago"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "names no job"),
        ({"flux": 3}, "no option called 'flux'"),
        ({"dp": "x"}, "dp='x' is not valid"),
        ({"schedule": ["a"]}, "is not valid"),
        ({"dp": 0}, "dp=0 is too small"),
        ({"tp": 10**18}, "tp=1000000000000000000 is too large"),
        ({"tp": 3}, "tp=3 does not divide heads=4"),
        ({"dp": 10**6, "batch": 4 * 10**6}, "1,000,000 ranks are more than the 32,768"),
    ],
)
def test_a_job_that_no_run_can_have_had_makes_a_run_corrupt(copied: Path, options: dict[str, Any], words: str) -> None:
    edit(copied, "run.json", lambda run: run.update(job=options))
    (entry,) = Store(copied.parent).entries()
    assert entry.info.status == "corrupt" and words in entry.info.message


SUMMARIES: list[tuple[Change, str]] = [
    (lambda s: s.pop("bubble"), "bubble: Field required"),
    (lambda s: s.update(overlap=None), "overlap"),
    (lambda s: s["memory"].pop("predicted_per_rank"), "memory.predicted_per_rank"),
    (lambda s: s["memory"]["per_rank"][1].pop("grads"), "memory.per_rank.1.grads"),
    (lambda s: s.update(communication=[{"axis": "dp"}]), "communication.0.op"),
    (lambda s: s["steps"][0].update(loss=float("nan")), "steps.0.loss"),
    (lambda s: s.pop("wall_s"), "wall_s"),
]


@pytest.mark.parametrize(("change", "words"), SUMMARIES, ids=lambda v: v if isinstance(v, str) else "")
def test_a_summary_that_lacks_something_is_said_to_and_the_run_is_still_listed(
    copied: Path, change: Change, words: str
) -> None:
    edit(copied, "summary.json", change)
    run = load("latest", Store(copied.parent))
    assert run.status == "finished"
    with pytest.raises(RunCorrupt, match=r"summary\.json of run") as error:
        run.steps  # noqa: B018
    assert words in str(error.value)


def test_what_a_real_run_says_of_itself_is_accepted_and_so_is_more(real_run: Run) -> None:
    summary = copy.deepcopy(real_run.summary)
    check_summary(summary | {"new": {"of": "a later version"}})
    assert readable_job(real_run.info.job) == real_run.job.options()


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["steps"][0].pop("seconds"),
        lambda s: s["steps"][0].update(seconds=None),
        lambda s: s["steps"][-1].update(loss="<b>"),
        lambda s: s.update(steps=[1, 2]),
        lambda s: s.update(parity=[1]),
        lambda s: s.update(bubble={"measured": "x"}),
        lambda s: s.update(memory={"per_rank": [{}]}),
    ],
)
def test_numbers_that_a_list_shows_are_numbers(copied: Path, change: Change) -> None:
    edit(copied, "summary.json", change)
    (entry,) = Store(copied.parent).entries()
    assert (entry.info.status, entry.info.message) == ("corrupt", "summary.json is not the summary of a run")


def rewrite(folder: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> Run:
    path = folder / f"{name}.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    return load("latest", Store(folder.parent))


@pytest.mark.parametrize("name", ["ops", "memory", "metrics"])
def test_a_table_has_all_columns_and_none_that_nobody_knows(copied: Path, name: str) -> None:
    with pytest.raises(RunCorrupt, match="called 'new'") as error:
        rewrite(copied, name, lambda table: table.append_column("new", pa.array([1] * table.num_rows))).recording  # noqa: B018
    assert isinstance(error.value.__cause__, Unknown)
    with pytest.raises(RunCorrupt, match=f"{name}.parquet has no column step") as error:
        rewrite(copied, name, lambda table: table.drop_columns(["step", "new"])).recording  # noqa: B018
    assert isinstance(error.value.__cause__, MissingColumn)


def test_tables_of_other_ranks_than_the_job_has_are_damage(copied: Path) -> None:
    edit(copied, "run.json", lambda run: run["job"].update(dp=1, batch=16))
    with pytest.raises(RunCorrupt, match=r"ops\.parquet is of ranks 0 to 7, not of 4"):
        load("latest", Store(copied.parent)).recording  # noqa: B018


def test_a_real_run_that_claims_to_be_simulated_is_not_believed(copied: Path) -> None:
    edit(copied, "run.json", lambda run: run.update(status="simulated"))
    with pytest.raises(RunCorrupt, match="cluster: Field required"):
        load("latest", Store(copied.parent)).summary  # noqa: B018


def test_a_table_without_a_row_is_no_trace(copied: Path, tmp_path: Path) -> None:
    run = rewrite(copied, "ops", lambda table: table.slice(0, 0))
    for form in ("perfetto", "hta"):
        with pytest.raises(RunCorrupt, match="hold no step"):
            run.export(form, tmp_path / form)


def test_a_column_of_another_kind_is_damage(copied: Path) -> None:
    def words(table: pa.Table) -> pa.Table:
        at = table.column_names.index("rank")
        return table.set_column(at, "rank", table["rank"].cast(pa.string()))

    with pytest.raises(RunCorrupt, match="column rank holds string, not int64"):
        rewrite(copied, "memory", words).recording  # noqa: B018
