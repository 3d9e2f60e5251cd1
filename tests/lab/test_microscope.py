"""The microscope behind a verdict, on real processes: what left one process first, and where; and how it is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import lab
from engine.execution.one_process import keep_reference
from engine.execution.reference import kept_floor, write_floor
from engine.execution.weight_samples import chosen
from engine.execution.worker import _scale
from engine.job.job import Job
from engine.model.params import unit_params
from engine.model.units import compute_units
from lab.facade import Run
from lab.running.execution import reference_file
from lab.store.store import Store
from lab.verdict import Curve, Distances, TensorDistances, judged, verdict_of
from lab.views.figures.comparison.microscope import LEAST, MOST, microscope_figure

SMALL = {"layers": 2, "hidden": 32, "seq": 16, "batch": 8, "steps": 4}
TENSOR = "block1.up.weight"


def test_every_tensor_of_a_real_run_was_looked_at_after_every_step(real_run: Run) -> None:
    found, model = real_run.distances, real_run.job.model
    assert found is not None and found.watched == (0, 1, 2) and found.has_floor
    names = {p.name for unit in compute_units(model) for p in unit_params(model, 1, unit)}
    assert {tensor.name for tensor in found.weights} == names
    for tensor in found.weights:
        assert all(value is not None and value < 1e-6 for value in tensor.off_by), tensor.name
    last = max(tensor.off_by[-1] or 0.0 for tensor in found.weights)
    largest = real_run.summary["parity"]["param_max_abs_diff"]
    assert largest / 2 <= last <= largest, "relative to the largest weight, which is a little more than 1"
    assert real_run.proof.badge.state == real_run.badge.state == "equal" and not real_run.proof.microscope


@pytest.fixture(scope="module")
def judged_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[dict[str, Any]], None]], Run]:
    """Runs two tensor ranks against a kept reference that was changed, as if the ranks had a bug."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("judged") / "runs"
        patch.setenv("SHARDLAB_RUNS", str(root))
        honest = lab.run(**SMALL, dp=1)
        assert honest.proof.badge.state == "equal"
        kept = reference_file(honest.job, Store(root))
        found, floor = torch.load(kept), kept_floor(kept)
        assert floor is not None

    def judged_by(change: Callable[[dict[str, Any]], None]) -> Run:
        changed = torch.load(kept)
        change(changed)
        keep_reference(kept, changed)
        write_floor(kept, floor)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDLAB_RUNS", str(root))
            run = lab.run(**SMALL, tp=2)
        keep_reference(kept, found)
        return run

    return judged_by


@pytest.mark.parametrize("half", [0, 1])
def test_the_first_step_tensor_and_rank_that_leave_are_named(half: int, judged_by: Any) -> None:
    """The rows of a column-parallel weight [4h, h] lie half on tensor rank 0 and half on rank 1."""
    rows, columns = 4 * 32, 32
    [param] = [p for p in unit_params(Job.from_options(**SMALL).model, 1, "block1") if p.name == TENSOR]
    at = next(i for i, place in enumerate(chosen(param).tolist()) if place // columns * 2 // rows == half)

    def change(found: dict[str, Any]) -> None:
        found["samples"][TENSOR][2:, at] += 1e-3

    run = judged_by(change)
    parity = run.summary["parity"]
    assert (parity["state"], parity["passed"], parity["first_step_out"]) == ("different", False, 2)
    assert parity["tensor_out"] == {"step": 2, "unit": "block1", "tensor": "up.weight", "rank": half}
    assert parity["limits"]["weights"]["off_by"] == pytest.approx(1e-3, rel=0.1)
    assert f"after step 2, block1 up.weight, rank {half}" in run.proof.microscope


def test_a_single_weight_that_nobody_looked_at_is_seen_after_the_last_step(judged_by: Any) -> None:
    def change(found: dict[str, Any]) -> None:
        found["weights"][TENSOR].view(-1)[7] += 1e-4

    parity = judged_by(change).summary["parity"]
    assert parity["state"] == "different" and parity["tensor_out"]["step"] == 3
    assert parity["param_max_abs_diff"] == pytest.approx(1e-4, rel=0.01)


def test_a_second_run_of_the_same_job_trains_nothing_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))
    first = lab.run(**SMALL, dp=2)
    names: list[str] = []
    from engine.execution import session

    alone = session._alone
    monkeypatch.setattr(session, "_alone", lambda name, *rest: names.append(name) or alone(name, *rest))
    second = lab.run(**SMALL, dp=2)
    assert not names and second.summary["parity"]["floor"] == first.summary["parity"]["floor"]


def test_a_training_too_slow_to_move_a_weight_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))
    run = lab.run(**SMALL, dp=2, lr=1e-60)
    assert run.summary["parity"]["moved"] == {"run": False, "one_process": False}
    assert "No weight of this run moved; neither did those of one process" in run.proof.why


def test_a_training_that_diverges_says_from_which_step_here_and_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))
    run = lab.run(**SMALL, dp=2, lr=1e36)
    parity = run.summary["parity"]
    assert (parity["state"], parity["passed"]) == ("diverged", False)
    ends = [row["step"] for row in run.steps if row["loss"] is None or row["grad_norm"] is None]
    assert parity["diverged"] == {"run": ends[0], "one_process": ends[0]}
    assert f"no number from step {ends[0]} on, in one process from step {ends[0]} on" in run.proof.why


# -- the figure


def drawn(off: tuple[float, ...], floor: tuple[float, ...]) -> Any:
    same = Curve((1.0,) * 3, (1.0,) * 3, (1.0,) * 3)
    calm = TensorDistances("block0.up.bias", (0.0,) * 3, (0,) * 3, (0.0,) * 3)
    worse = TensorDistances("block1.down.bias", off, (0, 1, 2), floor)
    found = Distances(loss=same, grad_norm=same, weights=(calm, worse), watched=(0, 1, 2), param=0.0, floor_param=0.0)
    return microscope_figure(found, verdict_of(judged(found)), theme="dark")


def test_the_microscope_draws_run_floor_and_limit_of_three_quantities_on_log_axes() -> None:
    fig = drawn((0.0, 1e-7, 3e-3), (0.0, 2e-6, 1e-6))
    assert [fig.layout[f"yaxis{n}"].type for n in ("", "2", "3")] == ["log"] * 3
    weights = {trace.name: trace for trace in fig.data if trace.yaxis == "y3"}
    assert list(weights["this run"].y) == [LEAST, 1e-7, 3e-3]
    assert list(weights["allowed"].y) == pytest.approx([1e-5, 2e-4, 2e-4])
    floor = next(trace for name, trace in weights.items() if name.startswith("rounding floor"))
    assert list(floor.y) == pytest.approx([LEAST, 2e-6, 2e-6])
    assert list(weights["beyond what is allowed, or no number"].x) == [2]
    assert "block1 down.bias" in " ".join(note.text for note in fig.layout.annotations)
    assert "first out: step 2, weights" in fig.layout.title.text


def test_what_is_no_number_is_drawn_above_all() -> None:
    fig = drawn((0.0, float("nan"), float("nan")), (0.0,) * 3)
    [run] = [trace for trace in fig.data if trace.yaxis == "y3" and trace.name == "this run"]
    assert list(run.y) == [LEAST, MOST, MOST]


def test_a_run_without_distances_by_step_gets_a_sentence() -> None:
    fig = microscope_figure(None, verdict_of({"passed": True}))
    assert not fig.data and "was not kept" in fig.layout.annotations[0].text


def test_a_mark_beyond_the_limit_is_explained_once_and_its_panel_says_furthest() -> None:
    fig = drawn((0.0, 1e-7, 3e-3), (0.0,) * 3)
    assert [trace.yaxis for trace in fig.data if trace.name.startswith("beyond") and trace.showlegend] == ["y3"]
    assert "furthest beyond" in fig.layout.annotations[-1].text
    assert "closest to" in drawn((0.0,) * 3, (0.0,) * 3).layout.annotations[-1].text


def test_weights_of_a_training_that_diverged_are_told_until_then_by_their_size_at_the_time() -> None:
    """The last weights of a training that diverged are no numbers, and give no scale."""
    nothing = torch.full((2,), math.nan)
    samples = {"a": torch.tensor([[1.0, -2.0], [3.0, math.nan]]), "b": torch.tensor([[0.5], [math.inf]])}
    assert _scale({"weights": {"a": nothing, "b": nothing}, "samples": samples}) == 2.0
    assert _scale({"weights": {"a": torch.tensor([1.0, -7.0])}, "samples": samples}) == 7.0
    assert math.isnan(_scale({"weights": {"a": nothing}, "samples": {}}))
