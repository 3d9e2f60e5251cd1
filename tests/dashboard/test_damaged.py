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


def settled(at: AppTest) -> AppTest:
    """`Visit` has seen that there is no exception; neither must a page be empty."""
    assert at.error or at.warning or at.info or charts(at)
    return at


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
        settled(visit(page, **{"live" if page == "live" else "run": broken}))
    for cluster in ("", "toy-2x4"):
        settled(visit("compare", runs=f"{whole},{broken}", cluster=cluster))
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
