"""Perfetto reads an exported trace whole: nothing dropped, moved, nameless or joined to the wrong end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from lab.facade import Run
from lab.views.exports import export
from tests.browser.perfetto import Perfetto

SLICES = """select pid, thread.name, slice.name, slice.ts, slice.dur from slice
    join thread_track on track_id = thread_track.id join thread using (utid) join process using (upid)"""
PLACES = """with places as (select slice.*, pid from slice
    join thread_track on track_id = thread_track.id join thread using (utid) join process using (upid))"""
ARROWS = f"""{PLACES} select outside.name, sent.name, received.name, received.pid - sent.pid, received.ts - sent.ts
    from flow join places sent on slice_out = sent.id join places received on slice_in = received.id
    join slice outside on outside.id = sent.parent_id"""
MOST = """select pid, process_counter_track.name, max(value) from counter
    join process_counter_track on track_id = process_counter_track.id join process using (upid) group by 1, 2"""


@pytest.fixture(scope="module")
def trace(real_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(real_run, "perfetto", tmp_path_factory.mktemp("trace") / "trace.json")


@pytest.fixture(scope="module")
def perfetto(browser: Browser, trace: Path) -> Iterator[Perfetto]:
    opened = Perfetto(browser, trace)
    yield opened
    opened.page.close()


def test_it_has_nothing_to_complain_about(perfetto: Perfetto) -> None:
    assert perfetto.ask("select name, value from stats where severity != 'info' and value > 0") == []


def test_it_holds_every_slice_to_the_nanosecond_under_its_name(perfetto: Perfetto, trace: Path) -> None:
    events: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    written = Counter(
        (e["pid"], names[e["tid"]], e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000))
        for e in events
        if e["ph"] == "X"
    )
    assert Counter(perfetto.ask(SLICES)) == written
    assert perfetto.ask("select name, max(depth) from slice group by name having max(depth) > 0") == [("sent", 1)]


def test_it_names_every_rank_with_its_coordinates(perfetto: Perfetto, real_run: Run) -> None:
    found = dict(perfetto.ask("select pid, name from process where name is not null"))
    assert set(found) == set(range(1, 9))
    assert found[4] == "rank 3 (data 1, tensor 1, pipeline 0)" and found[8] == "rank 7 (data 1, tensor 1, pipeline 1)"


def test_its_arrows_join_each_send_with_its_own_receive(perfetto: Perfetto, real_run: Run) -> None:
    arrows = perfetto.ask(ARROWS)
    kinds = Counter(real_run.recording.ops["kind"].to_pylist())
    assert len(arrows) == kinds["recv_act"] + kinds["recv_grad"] == kinds["send_act"] + kinds["send_grad"] > 0
    stages = {("send_act", "stage0"): ("recv_act", "stage1"), ("send_grad", "stage1"): ("recv_grad", "stage0")}
    for outside, inside, received, across, later in arrows:
        (kind, micro, stage), (wanted, same, other) = outside.split()[:3], received.split()[:3]
        assert (wanted, other) == stages[kind, stage] and same == micro and inside == "sent" and later >= 0
        assert across == (4 if kind == "send_act" else -4), "to the same place of the other stage's four ranks"


def test_its_counters_reach_what_the_run_reports(perfetto: Perfetto, real_run: Run) -> None:
    most = {(pid, name): value for pid, name, value in perfetto.ask(MOST)}
    for row in real_run.summary["memory"]["per_rank"]:
        pid = row["rank"] + 1
        assert most[pid, "memory activations"] == row["activations_peak"]
        assert most[pid, "memory params"] == row["params"] and most[pid, "memory optimizer"] == row["optimizer"]
    assert len(most) == 8 * 6
