"""Every plan trains exactly what one process trains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.execution.one_process import keep_reference
from engine.job.schedules import SCHEDULES
from tests.engine.running import one_process_of, train

TINY = {"layers": 4, "hidden": 32, "seq": 16, "batch": 16, "steps": 2, "vocab": 257}
DEGREES = [d for d in itertools.product((1, 2, 4), repeat=3) if 1 < d[0] * d[1] * d[2] <= 8]


def plans() -> list[dict[str, Any]]:
    """All plans that differ in what they execute: settings without effect (ZeRO with dp=1, …) appear once."""
    found = []
    for dp, tp, pp in DEGREES:
        schedules = [*SCHEDULES.names] if pp > 1 else ["1f1b", "gpipe"]
        for zero in range(4) if dp > 1 else [0]:
            for schedule, scatter, tied in itertools.product(schedules, [False, True][:tp], [False, True]):
                plan = {"dp": dp, "tp": tp, "pp": pp, "zero": zero, "schedule": schedule}
                chunks = 2 if schedule in ("interleaved", "zb-v") else 1
                found.append(plan | {"chunks": chunks, "sequence_parallel": scatter, "tied": tied})
    return found


def pairs(plan: dict[str, Any]) -> set[tuple[Any, ...]]:
    """Every two settings of a plan, its degrees together, and each degree with what it cuts.

    Of dp and tp the other settings see only whether they are used.
    """
    settings = {name: value > 1 if name in ("dp", "tp") else value for name, value in plan.items()}
    cut = [("dp", "zero"), ("tp", "sequence_parallel"), ("tp", "tied"), ("dp", "tp", "pp")]
    exact = {(*names, *(plan[name] for name in names)) for names in cut}
    return exact | set(itertools.combinations(sorted(settings.items()), 2))


def sample() -> list[dict[str, Any]]:
    """Few plans in which every two settings that can meet do meet, all axes at once where that is as good.

    Chosen greedily; `full_parity` runs them all.
    """
    left, chosen = plans(), []
    missing = set().union(*map(pairs, left))
    while missing:
        best = max(
            left, key=lambda plan: (len(pairs(plan) & missing), axes(plan), -plan["dp"] * plan["tp"] * plan["pp"])
        )
        chosen.append(best)
        missing -= pairs(best)
    return chosen


def axes(plan: dict[str, Any]) -> int:
    return sum(plan[axis] > 1 for axis in ("dp", "tp", "pp"))


def name(plan: dict[str, Any]) -> str:
    marks = ("-sp" if plan["sequence_parallel"] else "") + ("-tied" if plan["tied"] else "")
    return f"dp{plan['dp']}tp{plan['tp']}pp{plan['pp']}-zero{plan['zero']}-{plan['schedule']}{marks}"


def test_the_sample_uses_all_three_axes_in_a_third_of_its_plans() -> None:
    chosen = sample()
    assert len(chosen) <= 40 and sum(axes(plan) == 3 for plan in chosen) >= len(chosen) / 3


@pytest.mark.parametrize("plan", sample(), ids=name)
def test_a_plan_equals_one_process(plan: dict[str, Any]) -> None:
    layers = {"layers": 8} if plan["pp"] * plan["chunks"] > 4 else {}
    train(**TINY | layers | plan).assert_parity()


@pytest.mark.parametrize("zero", range(4))
def test_eight_stage_interleaving_equals_one_process(zero: int) -> None:
    train(**TINY | {"layers": 8}, dp=2, pp=4, schedule="interleaved", chunks=2, zero=zero, tied=True).assert_parity()


@pytest.mark.parametrize(
    "plan",
    [
        {"dp": 3, "batch": 12, "zero": 1},
        {"dp": 2, "tp": 2, "order": "dp-pp-tp", "pp": 2},
        {"pp": 2, "layers": 5, "partition": (4, 1)},
        {"pp": 3, "layers": 5},
        {"dp": 2, "zero": 3, "prefetch": 0},
        {"dp": 2, "zero": 3, "prefetch": 3, "keep_gathered": True},
        {"dp": 2, "zero": 1, "bucket_kb": 16},
        {"dp": 2, "clip": 0.01},
        {"tp": 2, "clip": 0.0},
        {"tp": 4, "sequence_parallel": True, "vocab": 258, "tied": True},
    ],
    ids=lambda p: "-".join(f"{k}{v}" for k, v in p.items()),
)
def test_less_usual_plans_equal_one_process(plan: dict[str, Any]) -> None:
    train(**TINY | plan).assert_parity()


def bits(**options: Any) -> tuple[list[float], list[float]]:
    """Losses and gradient norms of three steps; a norm is a double over every gradient, so no weight can differ."""
    run = train(parity=False, **TINY | {"steps": 3} | options)
    return run.losses, run.norms


@pytest.mark.parametrize("zero", range(4))
def test_overlap_and_prefetch_change_no_bit(zero: int) -> None:
    plan = {"dp": 2, "pp": 2, "zero": zero, "tied": True}
    plain = bits(**plan, overlap=False)
    assert plain == bits(**plan, overlap=True)
    assert plain == bits(**plan, overlap=True, prefetch=3)


def test_schedules_with_one_order_of_accumulation_give_the_same_bits() -> None:
    plain = bits(pp=2, schedule="1f1b")
    assert all(plain == bits(pp=2, schedule=other) for other in ("naive", "gpipe", "zb-h1", "zb-h2"))


def test_one_process_with_micro_batches_is_gradient_accumulation() -> None:
    train(**TINY | {"microbatches": 8}).assert_parity()


@pytest.mark.slow
def test_sixty_four_ranks_equal_one_process() -> None:
    options = TINY | {"heads": 4, "seq": 8, "batch": 8, "microbatches": 2, "steps": 1, "vocab": 256}
    train(**options, dp=4, tp=4, pp=4, zero=1).assert_parity()


def spoiled_weight(found: dict[str, Any]) -> None:
    found["weights"]["block1.up.bias"][3] = math.nan


def spoiled_loss(found: dict[str, Any]) -> None:
    found["losses"][0] = math.nan


def spoiled_norm(found: dict[str, Any]) -> None:
    found["grad_norms"][-1] = math.nan


@pytest.mark.parametrize("spoil", [spoiled_weight, spoiled_loss, spoiled_norm])
def test_what_is_no_number_equals_nothing(spoil: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    run = train(**TINY, dp=2, zero=3)
    run.assert_parity()
    found = torch.load(one_process_of(run.job))
    spoil(found)
    keep_reference(tmp_path / "spoiled.pt", found)
    with pytest.raises(AssertionError):
        train(**TINY, dp=2, zero=3, reference=tmp_path / "spoiled.pt").assert_parity()


def test_a_run_compared_with_nothing_equals_nothing() -> None:
    with pytest.raises((AssertionError, ValueError)):
        train(parity=False, **TINY).assert_parity()
