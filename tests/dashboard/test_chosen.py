"""Runs chosen in the table stay the ones that are chosen, whatever comes and goes meanwhile."""

from __future__ import annotations

import shutil

from streamlit.testing.v1 import AppTest

from lab.store.store import Store
from lab.store.trash import delete, deleted
from tests.dashboard.conftest import Visit
from tests.dashboard.test_pages import ids

NEWEST = "20991231-235959-dp2tp1pp1-zero1-ffff"


def choose(at: AppTest, run_id: str) -> None:
    """As a click on its row does."""
    row = list(at.dataframe[0].value["Id"]).index(run_id)
    at.session_state[at.dataframe[0].key] = {"selection": {"rows": [row]}}
    at.run()


def press(at: AppTest, label: str) -> None:
    next(button for button in at.button if button.label == label).click().run()


def test_a_run_that_comes_while_one_is_chosen_is_not_deleted_in_its_place(store: Store, visit: Visit) -> None:
    chosen = ids(store)["zero3pp1"]
    at = visit()
    choose(at, chosen)
    shutil.copytree(store.folder(chosen), store.folder(NEWEST))  # another window's run; the table is drawn anew
    at.run()
    press(at, "Delete")
    assert deleted(store) == [chosen] and store.folder(NEWEST).exists()


def test_a_filter_keeps_what_it_leaves_chosen(store: Store, visit: Visit) -> None:
    found = ids(store)
    at = visit()
    choose(at, found["zero3pp1"])
    at.text_input(key="search").set_value("zero=3").run()
    press(at, "Delete")
    assert deleted(store) == [found["zero3pp1"]]
    press(at, "Undo")
    assert deleted(store) == []


def test_what_no_filter_shows_is_not_chosen(store: Store, visit: Visit) -> None:
    at = visit()
    choose(at, ids(store)["zero3pp1"])
    at.text_input(key="search").set_value("zero=1").run()
    assert "Delete" not in [button.label for button in at.button]


def test_what_was_deleted_in_another_window_can_be_brought_back(store: Store, visit: Visit) -> None:
    found = ids(store)
    gone = [found["zero3pp1"], found["zero1pp1"]]
    for run_id in gone:
        delete(store, run_id)
    at = visit()
    assert "2 deleted, kept for 7 days" in [each.label for each in at.expander]
    at.multiselect(key="bring back").set_value([gone[0]]).run()
    press(at, "Restore")
    assert deleted(store) == [gone[1]] and gone[0] in list(at.dataframe[0].value["Id"])
    assert not at.exception and at.multiselect(key="bring back").value == []
