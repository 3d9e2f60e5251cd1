"""The explorer without a browser: real runs in the background, the newest wish wins, illegal ones are answered."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lab
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.processes.launch import RunCancelled
from lab.facade import Run
from lab.running.execution import Progress
from lab.store.store import Store
from lab.views import figures
from lab.widgets import Explorer
from lab.widgets.explorer import knobs
from lab.widgets.explorer.latest_only_worker import Latest
from lab.widgets.explorer.run_in_background import Background, RunRequest

PATIENCE = 120.0


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path))
    return tmp_path


@pytest.fixture
def explorer() -> Iterator[Explorer]:
    found = lab.explore(dp=2, views=("timeline", "memory"))
    yield found
    found.cancel()
    assert found.settle(PATIENCE)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def test_it_starts_with_a_real_run_that_equals_one_process(explorer: Explorer, runs: Path) -> None:
    assert explorer.settle(PATIENCE)
    assert explorer.run is not None and explorer.run.status == "finished"
    assert (explorer.panel.state, explorer.panel.badge["verdict"]) == ("measured", "equal")
    assert [entry.info.id for entry in Store(runs).entries()] == [explorer.run.id] == [explorer.panel.run]
    assert explorer.views.timeline is not None and explorer.views.timeline.data["layers"]


def test_the_stops_of_each_knob_are_held_against_the_rules_once_for_each_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Counter[tuple[str, Job]] = Counter()
    real = knobs.stops

    def counted(knob: knobs.Knob, job: Job) -> list[knobs.Stop]:
        asked[knob.name, job] += 1
        return real(knob, job)

    monkeypatch.setattr(knobs, "stops", counted)
    explorer = lab.explore(("zero", "dp"), dp=2, views=("memory",))
    explorer.turn("zero", 1)
    assert explorer.settle(PATIENCE) and explorer.panel.state == "measured"
    assert {name for name, _ in asked} == {"zero", "dp"} and set(asked.values()) == {1}


def test_turning_a_knob_runs_the_new_plan_and_draws_it(explorer: Explorer) -> None:
    assert explorer.settle(PATIENCE)
    explorer.turn("zero", 3)
    assert explorer.settle(PATIENCE)
    assert explorer.run is not None and explorer.run.job.plan.zero == 3
    assert explorer.views.plots["memory"].run == explorer.run.id == explorer.panel.run


def test_an_illegal_wish_changes_nothing_and_is_answered(explorer: Explorer) -> None:
    assert explorer.settle(PATIENCE)
    before = explorer.job, explorer.run
    explorer.turn("tp", 3)
    assert explorer.panel.said == "tp=3 does not divide heads=4: use 1, 2 or 4."
    assert (explorer.job, explorer.run) == before


@pytest.mark.parametrize(("name", "value"), [("tp", "many"), ("tp", None), ("nonsense", 1), ("link_speed", [2])])
def test_wishes_of_the_wrong_type_are_answered_too(explorer: Explorer, name: str, value: object) -> None:
    explorer.panel._handle_custom_msg({"kind": "wish", "name": name, "value": value}, [])
    assert explorer.panel.said != ""
    assert explorer.settle(PATIENCE)
    assert explorer.run is not None


@pytest.mark.parametrize(("name", "value"), [("text", "/etc/passwd"), ("steps", 50), ("layers", 8)])
def test_options_of_a_job_that_are_no_knobs_are_not_for_the_page_to_turn(
    explorer: Explorer, name: str, value: object
) -> None:
    before = explorer.job
    explorer.panel._handle_custom_msg({"kind": "wish", "name": name, "value": value}, [])
    assert explorer.panel.said.startswith(f"there is no knob called '{name}'")
    assert explorer.job == before


@pytest.mark.parametrize(
    "message", [None, [], "x", 5, {}, {"kind": "wish"}, {"kind": "wish", "name": "pp"}, {"kind": "source"}]
)
def test_messages_that_make_no_sense_change_nothing(explorer: Explorer, message: object) -> None:
    before = explorer.job
    explorer._on_message(message)
    assert explorer.job == before


def test_a_picture_that_cannot_be_drawn_is_told_and_the_next_is_drawn(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise OSError("no more paper")

    assert explorer.settle(PATIENCE)
    with monkeypatch.context() as patch:
        patch.setattr(explorer.views, "finish", broken)
        explorer.turn("zero", 1)
        assert explorer.settle(PATIENCE)
    assert (explorer.panel.state, explorer.panel.headline) == ("failed", "This cannot be shown: no more paper")
    explorer.turn("zero", 0)
    assert explorer.settle(PATIENCE)
    assert explorer.panel.state == "measured"


def test_coming_back_to_a_setting_shows_its_run_at_once(explorer: Explorer) -> None:
    assert explorer.settle(PATIENCE)
    first = explorer.run
    explorer.turn("zero", 1)
    assert explorer.settle(PATIENCE)
    explorer.turn("zero", 0)
    assert explorer.run is first


def test_run_again_measures_the_same_job_once_more(explorer: Explorer) -> None:
    assert explorer.settle(PATIENCE)
    first = explorer.run
    explorer.again()
    assert explorer.settle(PATIENCE)
    assert explorer.run is not None and first is not None
    assert (explorer.run.id != first.id, explorer.run.job) == (True, first.job)


def test_a_faster_link_replays_and_starts_no_run(explorer: Explorer, runs: Path) -> None:
    assert explorer.settle(PATIENCE)
    explorer.turn("link_speed", 1 / 16)
    assert explorer.settle(PATIENCE)
    slow = explorer.panel.headline
    assert (explorer.panel.state, explorer.panel.source) == ("replayed", "replayed")
    assert "with links ÷16" in slow
    assert len(Store(runs).entries()) == 1


def test_cancelling_leaves_the_prediction_and_says_so(runs: Path) -> None:
    explorer = lab.explore(dp=2, steps=500, views=("memory",))
    until(lambda: explorer.panel.progress > 0.05 and explorer.panel.state == "running")
    explorer.cancel()
    assert explorer.settle(PATIENCE)
    assert explorer.run is None
    assert explorer.panel.state == "cancelled"
    assert explorer.panel.headline.startswith("Cancelled: what stands here is the prediction. Predicted on toy-2x4")
    assert [entry.info.status for entry in Store(runs).entries()] in (["stopped"], [])


def test_the_newest_wish_wins(runs: Path) -> None:
    explorer = lab.explore(dp=2, steps=300, views=("memory",))
    until(lambda: bool(Store(runs).entries()))
    explorer.turn("zero", 1)
    explorer.turn("zero", 2)
    explorer.turn("dp", 1)
    explorer.cancel()
    explorer.turn("zero", 3)
    explorer.cancel()
    assert explorer.settle(PATIENCE)
    assert {entry.info.status for entry in Store(runs).entries()} == {"stopped"}
    explorer.again()
    explorer.turn("dp", 2)
    explorer.cancel()
    assert explorer.settle(PATIENCE)
    assert (explorer.run, explorer.panel.state) == (None, "cancelled")


def test_many_wishes_in_a_row_end_with_the_last_one_measured_and_shown_everywhere(explorer: Explorer) -> None:
    for zero in (1, 2, 3, 0, 3, 1, 2):
        explorer.turn("zero", zero)
    assert explorer.settle(PATIENCE)
    assert explorer.run is not None and explorer.run.job.plan.zero == 2
    assert explorer.panel.run == explorer.views.plots["memory"].run == explorer.run.id
    assert explorer.panel.state == "measured"


def test_ranks_chosen_while_runs_are_drawn_leave_no_old_run_behind() -> None:
    first, second = (lab.simulate(dp=4, zero=zero, cluster="toy-2x4") for zero in (0, 3))
    views = lab.view(first, "timeline", "memory")
    drawing = threading.Thread(target=lambda: [views.show(run) for run in (second, first) * 3 + (second,)])
    drawing.start()
    for n in range(40):
        views.select(n % 4)
    drawing.join(PATIENCE)
    views.select(None)
    expected = lab.view(second, "timeline", "memory")
    assert views.plots["memory"].title == expected.plots["memory"].title
    assert views.timeline is not None and expected.timeline is not None
    assert views.timeline.data["title"] == expected.timeline.data["title"]


def test_a_click_on_a_ball_means_its_rank_whatever_the_others_do() -> None:
    run = lab.simulate(dp=2, pp=2, cluster="toy-2x4")
    views = lab.view(run, "activity")
    balls = [trace for trace in figures.grid(run, colour="activity").data if trace.ids is not None]
    assert sorted(rank for trace in balls for rank in trace.ids) == ["0", "1", "2", "3"]
    assert len(balls) > 1, "ranks do different things"
    chosen = balls[-1].ids[0]
    views.plots["activity"]._handle_custom_msg({"kind": "click", "id": chosen, "x": 0, "y": 0}, [])
    assert views.rank == int(chosen)


def test_a_job_that_cannot_run_is_refused_before_anything_starts(runs: Path) -> None:
    with pytest.raises(JobRefused, match="tp=3 does not divide heads=4"):
        lab.explore(tp=3)
    with pytest.raises(ValueError, match="no view called 'time': did you mean timeline"):
        lab.explore(views=("time",))


def test_choosing_a_rank_in_one_view_marks_it_in_all(explorer: Explorer) -> None:
    assert explorer.settle(PATIENCE)
    views = explorer.views
    assert views.timeline is not None
    before = views.plots["memory"].spec
    views.timeline.selected_rank = 1
    assert views.choice.rank == 1
    assert views.plots["memory"].spec != before
    views.plots["memory"]._handle_custom_msg({"kind": "click", "id": "", "x": 0.2, "y": 1.0}, [])
    assert views.timeline.selected_rank == 0


def test_of_requests_that_pile_up_only_the_newest_is_done() -> None:
    began, go, done = threading.Event(), threading.Event(), []

    def work(n: int) -> None:
        began.set()
        go.wait(PATIENCE)
        done.append(n)

    latest: Latest[int] = Latest(work)
    latest.ask(1)
    began.wait(PATIENCE)
    for n in range(2, 9):
        latest.ask(n)
    go.set()
    assert latest.settle(PATIENCE)
    assert done == [1, 8]


def test_a_run_that_fails_is_told_and_the_next_wish_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []
    background = Background(lambda request, what: heard.append(what))

    def broken(*_: object, **__: object) -> Run:
        raise OSError("no space left")

    job = Job.from_options(dp=2, steps=1)
    with monkeypatch.context() as patch:
        patch.setattr("lab.widgets.explorer.run_in_background.execute", broken)
        background.want(job)
        assert background.settle(PATIENCE)
    assert [type(what) for what in heard] == [OSError]
    background.want(job)
    assert background.settle(PATIENCE)
    assert isinstance(heard[-1], Run)
    assert all(isinstance(what, (Progress, Run, OSError, RunCancelled)) for what in heard)


def test_an_attempt_cancelled_before_its_turn_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr("lab.widgets.explorer.run_in_background.execute", lambda *a, **k: ran.append(a))
    heard: list[object] = []
    background = Background(lambda request, what: heard.append(what))
    request = RunRequest(Job())
    request.cancel.set()
    background._execute(request)
    assert ran == []
    assert isinstance(heard[0], RunCancelled)
