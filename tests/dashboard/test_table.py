"""The table of runs and the filters above it."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from dashboard.runs.runs_table import Listed, Wanted, frame, wanted
from engine.job.job import Job
from lab.store.folder import Entry, RunInfo
from lab.store.notes import Notes

Known = Literal["finished", "failed", "corrupt"]
NOTHING = Notes()


def listed(run_id: str, status: Known = "finished", notes: Notes = NOTHING, message: str = "", **job: Any) -> Listed:
    digest = {"loss": 5.25, "step_seconds": 0.0123, "bubble": 0.25, "peak_bytes": 3_000_000, "parity": True}
    info = RunInfo(id=run_id, created="2026-11-30T10:00:00.000+00:00", status=status, message=message)
    if status == "corrupt":
        return Listed(Entry(info, {}), notes)
    options = Job.from_options(**job).options()
    return Listed(Entry(RunInfo(**{**vars(info), "job": options}), digest), notes)


RUNS = [
    listed("a", dp=2, zero=3, notes=Notes(name="Big one", tags=("talk",))),
    listed("b", "failed", message="rank 3 died in backward\nmore", pp=2, notes=Notes(star=True)),
    listed("c", "corrupt", message="run.json is missing"),
]


@pytest.mark.parametrize(
    ("by", "found"),
    [
        (Wanted(), "abc"),
        (Wanted(words="zero=3"), "a"),
        (Wanted(words="big ZERO=3"), "a"),
        (Wanted(words="rank 3 died"), "b"),
        (Wanted(words="no such thing"), ""),
        (Wanted(statuses=("failed", "corrupt")), "bc"),
        (Wanted(tags=("talk", "other")), "a"),
        (Wanted(starred=True), "b"),
        (Wanted(words="pp=2", statuses=("finished",)), ""),
    ],
)
def test_filters_narrow_the_list_and_keep_its_order(by: Wanted, found: str) -> None:
    assert "".join(run.entry.info.id for run in wanted(RUNS, by)) == found


def test_a_row_says_each_number_in_the_unit_of_its_heading() -> None:
    row = frame(RUNS).iloc[0].to_dict()
    assert (row["Step, ms"], row["Bubble, %"], row["Peak, MB"]) == (12.3, 25.0, 3.0)
    assert (row["Mesh"], row["ZeRO"], row["One process"]) == ("2 × 1 × 1", 3, "✔ equal")


def test_what_is_not_known_is_empty_and_only_the_first_line_of_a_message_is_shown() -> None:
    rows = frame(RUNS)
    assert rows["Message"][1] == "rank 3 died in backward"
    assert rows.iloc[2][["Loss", "Step, ms", "Bubble, %", "Peak, MB"]].isna().all() and rows["Mesh"][2] == ""


def test_a_message_of_a_megabyte_does_not_make_the_table_one() -> None:
    (row,) = frame([listed("a", "failed", message="\n \n" + "x" * 10**6)]).to_dict("records")
    assert row["Message"].startswith("xxx") and len(row["Message"]) < 1000


def test_no_runs_make_an_empty_table_with_its_columns() -> None:
    assert len(frame([])) == 0 and "Status" in frame([]).columns


def test_a_fault_and_the_verdict_stand_before_the_numbers() -> None:
    row = frame([listed("a", dp=2, bug="same-data")]).iloc[0]
    assert row["Fault"] == "same-data" and frame(RUNS)["Fault"].tolist() == ["", "", ""]
    columns = list(row.index)
    assert max(map(columns.index, ("Fault", "One process"))) < columns.index("Step, ms")
