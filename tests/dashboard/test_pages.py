"""What each page shows and refuses, without a browser."""

from __future__ import annotations

import json
import math
import shutil
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from lab.store.notes import write_notes
from lab.store.store import Store
from tests.dashboard.conftest import Visit

PAGES = ("runs", "launch", "live", "compare", "pipeline", "grid", "memory", "communication")


def ids(store: Store) -> dict[str, str]:
    """The runs by what they are."""
    found = {}
    for entry in store.entries():
        job = entry.info.job
        kind = entry.info.status if entry.info.status != "finished" else f"zero{job['zero']}pp{job['pp']}"
        found[kind] = entry.info.id
    return found


def words(at: AppTest) -> str:
    """Everything that a page says in text."""
    parts = [*at.title, *at.markdown, *at.caption, *at.info, *at.warning, *at.error, *at.success, *at.subheader]
    return "\n".join(str(part.value) for part in parts)


def charts(at: AppTest) -> list[Any]:
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


@pytest.mark.parametrize("page", PAGES)
def test_a_first_visit_offers_the_demo_on_every_page_about_runs(empty: Store, visit: Visit, page: str) -> None:
    at = visit(page)
    buttons = [button.label for button in at.button]
    assert "Start" in buttons if page == "launch" else "Run the demo" in buttons
    assert not (empty.root / ".queue").exists(), "looking starts nothing"


def test_all_runs_are_listed_with_the_damaged_and_the_failed(store: Store, visit: Visit) -> None:
    at = visit()
    table = at.dataframe[0].value
    assert sorted(table["Status"]) == sorted(["✔ finished"] * 3 + ["◇ simulated", "✘ failed", "⚠ corrupt"])
    assert "rank 1 died in <b>backward</b>" in list(table["Message"])
    summary = json.loads((store.folder(ids(store)["zero3pp1"]) / "summary.json").read_text())
    row = table[table["Id"] == ids(store)["zero3pp1"]].iloc[0]
    assert row["Peak, MB"] == max(rank["total_peak"] for rank in summary["memory"]["per_rank"]) / 1e6
    assert row["Bubble, %"] == 100 * summary["bubble"]["measured"] and row["One process"] == "✔ equal"


def test_filters_stand_in_the_address(store: Store, visit: Visit) -> None:
    at = visit(search="zero=3", status="finished")
    assert len(at.dataframe[0].value) == 1
    assert "No run fits" in words(visit(search="no such thing"))


@pytest.mark.parametrize("page", ["pipeline", "grid", "memory", "communication"])
def test_a_page_about_one_run_shows_the_run_of_its_address(store: Store, visit: Visit, page: str) -> None:
    for kind in ("zero1pp1", "zero0pp2", "simulated"):
        at = visit(page, run=ids(store)[kind])
        assert at.query_params["run"] == ids(store)[kind] and charts(at)


@pytest.mark.parametrize("page", ["pipeline", "grid", "memory", "communication"])
@pytest.mark.parametrize("kind", ["failed", "corrupt"])
def test_a_run_without_a_step_is_said_in_words(store: Store, visit: Visit, page: str, kind: str) -> None:
    said = words(visit(page, run=ids(store)[kind]))
    said = said.replace("\\", "")
    assert (
        "damaged: run.json cannot be read" in said if kind == "corrupt" else "rank 1 died in <b>backward</b>." in said
    )


STRANGERS = ["../../etc/passwd", "20260101-000000-nobody-0000", "<b>x</b>", "x" * 5000, "![x](http://x)"]


@pytest.mark.parametrize("name", STRANGERS)
def test_an_address_that_names_no_run_of_the_store_says_so_and_shows_another(
    store: Store, visit: Visit, name: str
) -> None:
    at = visit("memory", run=name)
    assert "is not in this store" in words(at) and charts(at)
    assert "![" not in words(at), "no link may bring a picture from elsewhere"


def test_a_copy_of_a_run_is_another_run_in_every_list(store: Store, visit: Visit) -> None:
    run = ids(store)["zero1pp1"]
    copy = f"20200101-000000-copy-{run[-4:]}"
    shutil.copytree(store.folder(run), store.folder(copy))
    at = visit("memory", run=copy)
    assert at.query_params["run"] == copy and len(set(at.selectbox[0].options)) == len(at.selectbox[0].options) == 7
    assert at.selectbox[0].value == copy


def test_times_can_be_those_of_a_described_cluster(store: Store, visit: Visit) -> None:
    run = ids(store)["zero0pp2"]
    here, there = (charts(visit("pipeline", run=run, cluster=name)) for name in ("", "toy-2x4"))
    assert here[0] != there[0]
    assert charts(visit("pipeline", run=run, cluster="no-such")) == here


def test_times_that_the_reader_chooses_stay_chosen(store: Store, visit: Visit) -> None:
    at = visit("pipeline", run=ids(store)["zero0pp2"])
    at.selectbox[1].set_value("toy-2x4").run()
    assert at.selectbox[1].value == "toy-2x4" and at.query_params["cluster"] == "toy-2x4"
    assert at.run().selectbox[1].value == "toy-2x4"


def test_ranks_and_steps_of_the_address_are_chosen_and_wrong_ones_are_not(store: Store, visit: Visit) -> None:
    at = visit("pipeline", run=ids(store)["zero1pp1"], rank="1", step="0", window="1-2")
    assert (at.selectbox[2].value, at.selectbox[3].value) == (1, 0)
    at = visit("pipeline", run=ids(store)["zero1pp1"], rank="99", step="-5", window="x")
    assert at.selectbox[2].value == -1


def test_a_comparison_says_what_differs_and_by_how_much(store: Store, visit: Visit) -> None:
    found = ids(store)
    pair = [found["zero1pp1"], found["zero3pp1"]]
    at = visit("compare", runs=",".join(pair))
    differ, deltas = (table.value for table in at.table)
    assert dict(differ.loc["zero"]) == {"A": "1", "B": "3"} and len(differ) == 1
    peaks = []
    for run in pair:
        summary = json.loads((store.folder(run) / "summary.json").read_text())
        peaks.append(max(rank["total_peak"] for rank in summary["memory"]["per_rank"]))
    row = deltas.loc["peak memory of the fullest rank"]
    change = abs(100 * (peaks[1] / peaks[0] - 1))
    shown = f"{change:.1f} %" if change < 9.95 else f"{change:.0f} %"
    assert shown in row["B − A"].replace("\\", ""), (row, peaks)
    assert ("✘ worse" in row["B − A"]) == (peaks[1] > peaks[0])
    assert "zero" in words(at) and "1 → 3" in words(at).replace("\\", "")


def test_the_baseline_is_chosen_and_stands_in_the_address(store: Store, visit: Visit) -> None:
    found = ids(store)
    pair = [found["zero1pp1"], found["zero3pp1"]]
    at = visit("compare", runs=",".join(pair), base=pair[1])
    assert dict(at.table[0].value.loc["zero"]) == {"A": "3", "B": "1"}


def test_a_comparison_of_one_run_or_of_strangers_asks_for_more(store: Store, visit: Visit) -> None:
    for runs in ("", ids(store)["zero1pp1"], "nobody,nothing", ids(store)["failed"]):
        assert "at least two" in words(visit("compare", runs=runs))


def test_a_measured_run_is_compared_with_a_simulated_one_and_with_replays(store: Store, visit: Visit) -> None:
    found = ids(store)
    runs = f"{found['zero1pp1']},{found['simulated']}"
    for cluster in ("", "a100-dgx"):
        at = visit("compare", runs=runs, cluster=cluster)
        assert not at.error and len(at.table) == 2


def test_the_name_of_a_run_is_shown_letter_for_letter(store: Store, visit: Visit) -> None:
    found = ids(store)
    write_notes(store.folder(found["zero1pp1"]), name="<img src=x> **bold** [a](b)")
    at = visit("compare", runs=f"{found['zero1pp1']},{found['zero3pp1']}")
    shown = [str(part.value) for part in at.markdown]
    assert any("<img src=x> **bold** [a](b)" in text.replace("\\", "") for text in shown)
    assert not any("<img" in text and "\\<img" not in text for text in shown)


def test_the_form_refuses_in_the_words_of_the_job_and_previews_what_is_legal(empty: Store, visit: Visit) -> None:
    at = visit("launch")
    assert [metric.value for metric in at.metric if metric.label == "Processes"] == ["8"]
    at.number_input(key="job tp").set_value(3).run()
    assert "tp=3 does not divide heads=4: use 1, 2 or 4." in at.error[0].value.replace("\\", "")
    assert "Start" not in [button.label for button in at.button]
    at.number_input(key="job tp").set_value(1).run()
    at.selectbox(key="job schedule").set_value("interleaved").run()
    assert at.number_input(key="job chunks").value == 2 and not at.error
    assert "--schedule interleaved" in at.code[0].value and "tp = 1" in at.code[1].value


def test_a_preset_fills_the_form_and_starts_several(empty: Store, visit: Visit) -> None:
    at = visit("launch")
    next(button for button in at.button if button.label == "ZeRO-1 against ZeRO-3").click().run()
    assert (at.number_input(key="job dp").value, at.selectbox(key="vary").value) == (4, "zero")
    assert "Start 2 runs" in [button.label for button in at.button]
    assert at.code[0].value.splitlines() == [
        "lab run --layers 8 --dp 4 --zero 1", "lab run --layers 8 --dp 4 --zero 3"
    ]  # fmt: skip


def test_the_planner_lists_plans_that_fit_and_says_why_others_do_not(empty: Store, visit: Visit) -> None:
    at = visit("planner", model="example-12-layer", on="a100-dgx", gpus="8")
    plans = at.dataframe[0].value
    assert len(plans) and (plans["GB a GPU"] < 80).all()
    first = plans.iloc[0]["dp × tp × pp"].split(" × ")
    assert int(first[0]) * int(first[1]) * int(first[2]) == 8
    assert "Fastest" in words(at)
    only = visit("planner", model="example-12-layer", on="a100-dgx", gpus="8", **{"fix tp": "2", "fix pp": "4"})
    assert set(only.dataframe[0].value["dp × tp × pp"]) == {"1 × 2 × 4"}
    pure = {"fix tp": "1", "fix pp": "1", "fix zero": "0"}
    assert "fits nowhere" in words(visit("planner", model="gpt3-175b", on="a100-dgx", gpus="1024", **pure))
    assert "is more than the" in words(visit("planner", model="gpt3-175b", on="toy-2x4", gpus="1024")).replace("\\", "")


def test_the_planner_shows_partitions_where_some_plan_has_its_own(empty: Store, visit: Visit) -> None:
    def blocks(pp: str) -> list[str]:
        table = visit("planner", model="example-12-layer", on="a100-dgx", gpus="8", **{"fix pp": pp}).dataframe[0]
        return list(table.value["Blocks"]) if "Blocks" in table.proto.column_order else []

    own = [row for row in blocks("8") if row]
    assert own and all(sum(_blocks(word) for word in row.split(" + ")) == 12 for row in own), own
    assert not blocks("1"), "one stage has nothing to cut"


def _blocks(word: str) -> int:
    """3 × 2 → 6."""
    return math.prod(int(number) for number in word.split(" × "))
