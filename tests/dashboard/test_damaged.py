"""Runs that are damaged, hostile or gone: a page says so in words, and shows all others as before."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from lab.launcher.markers import Markers
from lab.store.store import Store
from tests.dashboard.conftest import Visit
from tests.dashboard.test_pages import charts, ids, words
from tests.lab.damages import DAMAGES, edited

ONE_RUN = ("pipeline", "grid", "memory", "communication", "live")


FOLDER_OF = " is damaged: "
FOLDER = "This run's folder is damaged: "
JOB = "the job in run.json cannot be read: "
REST = "The rest of this page cannot be shown. If it is about a run"
GONE = "The link names a run that is not in this store: "
SHOWN = ""  # no box, and charts: the damage is in what this page does not need
TOLD: dict[str, dict[str, str]] = {
    "no job": {
        "": FOLDER + "run.json names no job.", "live": "run.json names no job",
        "compare": FOLDER_OF + "run.json names no job.",
    },
    "a job of another version": {
        "": f"{FOLDER}{JOB}there is no option called 'flux'", "live": JOB + "there is no option called 'flux'",
        "compare": f"{FOLDER_OF}{JOB}there is no option called 'flux'",
    },
    "a job of a billion ranks": {
        "": f"{FOLDER}{JOB}dp × tp × pp = 1,000,000,000 ranks are more than the 32,768",
        "live": JOB + "dp × tp × pp = 1,000,000,000 ranks are more than the 32,768",
        "compare": f"{FOLDER_OF}{JOB}dp × tp × pp = 1,000,000,000 ranks",
    },
    "a job of another run": {"": "cannot be read: ops.parquet is of ranks 0 to 1, not of 1"},
    "no summary of a run": {
        "": FOLDER + "summary.json is not the summary of a run.", "live": "summary.json is not the summary of a run",
        "compare": FOLDER_OF + "summary.json is not the summary of a run.",
    },
    "a summary without bubbles": {
        "": "cannot be read: bubble: Input should be a dictionary", "compare toy-2x4": SHOWN,
    },
    "garbled operations": {"": REST, "grid": SHOWN, "memory": SHOWN, "live": "ops.parquet cannot be read"},
    "ranks that there are not": {"": "cannot be read: ops.parquet is of ranks 99 to 99, not of 2"},
    "peers that there are not": {
        "": SHOWN, "communication": REST, "compare toy-2x4": "cannot be replayed: cluster toy-2x4 has only 8 devices.",
    },
    "bytes beyond counting": {"": SHOWN, "communication": REST, "compare toy-2x4": REST},
    "a file in its place": {"": GONE, "live": GONE, "compare": GONE},
    "nothing": {"": GONE, "live": GONE, "compare": GONE},
}  # fmt: skip
"""What a page says of each damage; "" stands for the pages that are not named."""


def assert_told(at: AppTest, kind: str, page: str) -> None:
    """`Visit` has seen that there is no exception; the page says what is wrong, or what it shows is whole."""
    told = TOLD[kind]
    words = told.get(page, told.get(page.split()[0], told[""]))
    boxes = [str(box.value).replace("\\", "") for box in (*at.error, *at.warning, *at.info)]
    if words == SHOWN:
        assert not boxes and charts(at), (page, boxes)
    else:
        assert len(boxes) == 1 or words == GONE, (page, words, boxes)  # the run shown in its place may have one too
        assert words in boxes[0] or (words == GONE and any(words in box for box in boxes)), (page, words, boxes)


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_run_is_told_in_words_on_every_page_and_the_others_are_there(
    store: Store, visit: Visit, kind: str
) -> None:
    found = ids(store)
    broken, whole = found["zero1pp1"], found["zero3pp1"]
    visit("live", live=broken)  # as it was, which the server remembers
    DAMAGES[kind](store.folder(broken))
    listed = visit().dataframe[0].value
    assert whole in list(listed["Id"])
    for page in ONE_RUN:
        assert_told(visit(page, **{"live" if page == "live" else "run": broken}), kind, page)
    for cluster in ("", "toy-2x4"):
        at = visit("compare", runs=f"{whole},{broken}", cluster=cluster)
        assert_told(at, kind, f"compare {cluster}".strip())
    assert charts(visit("pipeline", run=whole))


def test_the_message_of_a_run_loads_no_picture_and_is_no_markup(store: Store, visit: Visit) -> None:
    run = ids(store)["zero1pp1"]
    hostile = "![x](http://example.org/x.png) <img src=x> :red[no] $x$\n" + "long " * 100_000
    edited("run.json", status="failed", message=hostile)(store.folder(run))
    for page in ("pipeline", "live"):
        at = visit(page, **{"live" if page == "live" else "run": run})
        (said,) = [warning.value for warning in at.warning]
        assert "\\!\\[x\\]\\(http\\:" in said and "\\<img" in said and "\\:red\\[" in said and "\\$x" in said
        assert len(said) < 10_000


def test_a_link_with_markup_in_it_is_shown_letter_for_letter(store: Store, visit: Visit) -> None:
    (said,) = [warning.value for warning in visit("memory", run="![x](http://example.org/x.png)").warning]
    assert "\\!\\[x\\]\\(http\\:" in said


def test_a_run_that_ended_without_a_reason_and_a_simulated_one_are_no_empty_boxes(store: Store, visit: Visit) -> None:
    found = ids(store)
    edited("run.json", status="failed", message=" \n\n")(store.folder(found["zero1pp1"]))
    assert all(box.value for box in visit("live", live=found["zero1pp1"]).warning)
    assert "simulated, so nothing goes on" in words(visit("live", live=found["simulated"]))


def test_a_queue_that_cannot_be_read_is_told_in_a_sentence_and_hides_no_run(store: Store, visit: Visit) -> None:
    Markers(store.root).put("20260101-000000-dp1tp1pp1-zero0-abcd")
    (store.root / "launches.lock").mkdir()
    at = visit()
    assert "launches.lock" in words(at).replace("\\", "") and len(at.dataframe[0].value) == 6
    at = visit("live", live=ids(store)["zero1pp1"])
    assert "launches.lock" in words(at).replace("\\", "") and charts(at)
    assert charts(visit("pipeline"))
