"""The rule by which a run equals one process, and the record of what it found: `parity` in `summary.json`.

Each |Δ| to one process is relative: of a loss or gradient norm to its value, of a weight to the model's largest. At
each step it may be `LIMIT`, or `MULTIPLE` times what the other order of summation was off until then, whichever is
more. While the floor is tiny, in the first steps, only the first counts; rounding that grows along the training, as it
does exponentially in a chaotic one, lifts the second for run and floor alike.

Measured (GPT, hidden 256, 100 steps): all that rounding makes grows along the same direction, so that two orders stay
the same multiple of each other in loss, norm and every tensor, from the step on in which they leave 1e-7. How large it
is at first differs by the order: a split of the batch alone starts at an eighth of what last bits of the weights make,
and one split at up to thirty times another. So the floor has both, and is the largest of what was tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from lab.verdict.distances import Curve, Distances, Number, TensorDistances
from lab.verdict.trace import Trace
from lab.wording import LOSS_LIMIT

LIMIT = LOSS_LIMIT
"""What is allowed however small the floor is: some rounding errors of fp32 (6e-8), which add up in a step."""
MULTIPLE = 100.0
"""Two honest orders are not equally far off: of 163 jobs, 91 of them drawn at random, two were 23 and 34 times as far
off as the floor after 60 steps, all others at most 10 times. It hides no bug of the zoo: at hidden 64 and 256, after 3,
30 and 100 steps, each is at least 60 times beyond what is allowed, in an early step in which the floor is tiny.
"""

NOT_COMPARED: dict[str, Any] = dict.fromkeys(
    ("passed", "state", "first_step_out", "floor", "loss_max_abs_diff", "grad_norm_max_rel_diff", "param_max_abs_diff")
)

Row = dict[str, Any]


def judged(found: Distances) -> Row:
    """The record: {passed, state, first_step_out, floor, …}. state: equal, rounding, different or diverged.

    loss_max_abs_diff, grad_norm_max_rel_diff, param_max_abs_diff: over the whole run, the last over all weights after
    the last step; floor: {loss, grad_norm, param}, the same of the other order. limits: by quantity, where it comes
    closest to its limit: {step, off_by, limit, floor}. first_out: {step, quantity}, and tensor_out: {step, unit,
    tensor, rank}, where the run left `LIMIT` (rounding) or what is allowed (different). diverged: {run, one_process},
    the first step whose loss or norm is no number. moved: {run, one_process}, whether any weight changed.
    """
    ends = {name: _ends(found, which) for name, which in _CURVES.items()}
    cut = min((end for end in (ends["one_process"], ends["other_order"]) if end is not None), default=None)
    cut = cut if cut is None or ends["run"] is None else min(cut, ends["run"])
    every = [trace for trace in traces(found, cut) if trace.steps]
    state, beyond = _state(found, every, cut)
    out = _first_out(every, beyond)
    return {
        "passed": state in ("equal", "rounding"),
        "state": state,
        "first_step_out": cut if state == "diverged" else out["first_out"]["step"] if out["first_out"] else None,
        "floor": _floor(found),
        "loss_max_abs_diff": _largest(map(_apart, found.loss.run, found.loss.one_process)),
        "grad_norm_max_rel_diff": _largest(map(_relative, found.grad_norm.run, found.grad_norm.one_process)),
        "param_max_abs_diff": found.param,
        "limits": {trace.quantity: _closest(trace) for trace in _one_each(every)},
        **out,
        "diverged": None if ends["run"] is None and cut is None else {k: ends[k] for k in ("run", "one_process")},
        "moved": {"run": found.moved[0], "one_process": found.moved[1]},
    }


def traces(found: Distances, cut: int | None = None) -> list[Trace]:
    """Loss, gradient norm, and the weights of each parameter; of a training that diverges, what was before `cut`."""
    curves = [_of_curve("loss", found.loss), _of_curve("grad_norm", found.grad_norm)]
    weights = [_of_tensor(tensor, found.watched) for tensor in found.weights]
    # weights may be lost in the update that makes the next loss no number
    return [t.until(cut) for t in curves] + [t.until(None if cut is None else cut - 1) for t in weights]


def shown_traces(found: Distances) -> list[Trace]:
    """One of each quantity: of the weights, the parameter that comes closest to its limit."""
    return list(_one_each([trace for trace in traces(found) if trace.steps]))


_CURVES = {"run": "run", "one_process": "one_process", "other_order": "other_order"}


def _ends(found: Distances, which: str) -> int | None:
    """The first step whose loss or gradient norm is no number."""
    pairs = zip(getattr(found.loss, which), getattr(found.grad_norm, which), strict=True)
    return next((step for step, pair in enumerate(pairs) if not all(map(math.isfinite, pair))), None)


def _state(found: Distances, every: Sequence[Trace], cut: int | None) -> tuple[str, float | None]:
    """The state, and what its first step out is beyond: a limit, or None for what is allowed."""
    if any(trace.first_beyond() is not None for trace in every):
        return "different", None
    if cut is not None:
        return "diverged", None
    if not found.weights or math.isnan(found.param) or found.moved == (False, True):
        return "different", None
    return ("rounding", LIMIT) if any(t.first_beyond(LIMIT) is not None for t in every) else ("equal", None)


def _of_curve(quantity: str, curve: Curve) -> Trace:
    steps = tuple(range(len(curve.run)))
    floor = _highest(map(_relative, curve.other_order, curve.one_process), len(steps))
    off_by = tuple(map(_relative, curve.run, curve.one_process))
    return Trace(quantity, steps, off_by, floor, tuple(map(_allowed, floor)))


def _of_tensor(tensor: TensorDistances, watched: Sequence[int]) -> Trace:
    seen = [i for i, value in enumerate(tensor.off_by) if value is not None]
    everywhere = _highest((value or 0.0 for value in tensor.floor), len(watched))
    floor = tuple(everywhere[i] for i in seen)
    return Trace(
        "weights", tuple(watched[i] for i in seen), tuple(tensor.off_by[i] or 0.0 for i in seen), floor,
        tuple(map(_allowed, floor)), tensor.unit, tensor.tensor, tuple(tensor.rank[i] for i in seen),
    )  # fmt: skip


def _highest(floor: Any, steps: int) -> tuple[Number, ...]:
    """The most until each step; None for steps that were not measured."""
    known: tuple[float, ...] = tuple(accumulate(floor, lambda a, b: b if b > a else a))
    return known or (None,) * steps


def _allowed(floor: Number) -> float:
    return LIMIT if floor is None else max(LIMIT, MULTIPLE * floor)


def _one_each(every: Sequence[Trace]) -> Iterator[Trace]:
    """Of the weights, those of the parameter that comes closest to its limit."""
    for quantity in dict.fromkeys(trace.quantity for trace in every):
        yield max((t for t in every if t.quantity == quantity), key=lambda t: t.share(t.worst))


def _closest(trace: Trace) -> Row:
    i = trace.worst
    where = {"unit": trace.unit, "tensor": trace.tensor, "rank": trace.ranks[i]} if trace.ranks else {}
    found = {"step": trace.steps[i], "off_by": trace.off_by[i], "limit": trace.limit[i], "floor": trace.floor[i]}
    return found | where


def _first_out(every: Sequence[Trace], beyond: float | None) -> Row:
    """Where a run left what is allowed, or `beyond`: at all, and with which parameter."""
    left = [(trace, at) for trace in every if (at := trace.first_beyond(beyond)) is not None]
    if not left:
        return {"first_out": None, "tensor_out": None}
    first, at = min(left, key=lambda one: (one[0].steps[one[1]], one[0].quantity == "weights"))
    out: Row = {"first_out": {"step": first.steps[at], "quantity": first.quantity}, "tensor_out": None}
    if tensors := [one for one in left if one[0].ranks]:
        trace, i = min(tensors, key=lambda one: (one[0].steps[one[1]], -one[0].share(one[1])))
        out["tensor_out"] = {
            "step": trace.steps[i], "unit": trace.unit, "tensor": trace.tensor, "rank": trace.ranks[i],
        }  # fmt: skip
    return out


def _floor(found: Distances) -> Row | None:
    if not found.has_floor:
        return None
    return {
        "loss": _largest(map(_apart, found.loss.other_order, found.loss.one_process)),
        "grad_norm": _largest(map(_relative, found.grad_norm.other_order, found.grad_norm.one_process)),
        "param": found.floor_param,
    }


def _apart(a: float, b: float) -> float:
    return abs(a - b)  # NaN between two infinities, which are not equal losses


def _relative(value: float, reference: float) -> float:
    apart = _apart(value, reference)
    if apart == 0:
        return 0.0
    return apart / abs(reference) if reference else math.inf


def _largest(values: Any) -> float:
    """The maximum; NaN if any value is, for a difference nobody can state is no small one."""
    found = list(values)
    return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)
