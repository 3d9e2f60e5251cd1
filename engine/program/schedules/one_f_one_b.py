"""Schedules of whole backwards: naive, GPipe, 1F1B and its interleaved form. Stage s lives on rank r = s mod p.

Their bubbles are fractions of the total: GPipe and 1F1B (p−1)/(m+p−1) (Huang et al. 2019, section 2.3; Narayanan et al.
2021, section 2.2.1), interleaved (p−1)/(vm+p−1) (same, 2.2.2, as a fraction of the total), naive (p−1)/p: one stage
works at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from engine.job.nearest import nearest_multiples
from engine.job.schedules import SCHEDULES, Schedule
from engine.program.kinds import Kind
from engine.program.program import Action, Lanes, lanes_of

if TYPE_CHECKING:
    from engine.job.schedules import PipelinePlan

ScheduleFunction = Callable[[int, int, int], Lanes]


def forward(stage: int, microbatch: int) -> Action:
    """Of a whole stage; the compiler makes its units of it."""
    return Action(Kind.FORWARD, microbatch=microbatch, stage=stage)


def backward(stage: int, microbatch: int) -> Action:
    """The whole backward of a stage, of inputs and weights together."""
    return Action(Kind.BACKWARD, microbatch=microbatch, stage=stage)


def naive(p: int, m: int, v: int) -> Lanes:
    """Layer split without pipelining: a micro-batch goes all the way up and down before the next one starts."""
    return lanes_of([do(r, k) for k in range(m) for do in (forward, backward)] for r in range(p))


def gpipe(p: int, m: int, v: int) -> Lanes:
    """All forwards, then all backwards (Huang et al. 2019, GPipe, figure 2c)."""
    return lanes_of([do(r, k) for do in (forward, backward) for k in range(m)] for r in range(p))


def one_f_one_b(p: int, m: int, v: int) -> Lanes:
    """Warm up with p-1-r forwards, then alternate, then drain (Narayanan et al. 2021, PipeDream-2BW, figure 2b)."""
    return lanes_of(_alternate([(r, k) for k in range(m)], [(r, k) for k in range(m)], p - 1 - r) for r in range(p))


def interleaved(p: int, m: int, v: int) -> Lanes:
    """1F1B over v chunks a rank, p micro-batches at a time (Narayanan et al. 2021, Megatron-LM, section 2.2.2)."""
    assert m % p == 0, (m, p)
    lanes = []
    for r in range(p):
        rounds = [(chunk, first + k) for first in range(0, m, p) for chunk in range(v) for k in range(p)]
        ups = [(chunk * p + r, k) for chunk, k in rounds]
        downs = [((v - 1 - chunk) * p + r, k) for chunk, k in rounds]
        lanes.append(_alternate(ups, downs, 2 * (p - 1 - r) + (v - 1) * p))
    return lanes_of(lanes)


def _alternate(ups: list[tuple[int, int]], downs: list[tuple[int, int]], warmup: int) -> list[Action]:
    """`warmup` forwards, then one forward and one backward in turn, then the backwards left over."""
    warmup = min(warmup, len(ups))
    order = [forward(*up) for up in ups[:warmup]]
    for up, down in zip(ups[warmup:], downs, strict=False):
        order += [forward(*up), backward(*down)]
    return order + [backward(*down) for down in downs[len(ups) - warmup :]]


def _whole_rounds(plan: PipelinePlan) -> Iterator[str]:
    if plan.microbatches % plan.pp:
        near = nearest_multiples(plan.microbatches, plan.pp)
        yield f"schedule=interleaved: pp={plan.pp} does not divide microbatches={plan.microbatches}: use {near}."


def _filling(p: int, m: int, v: int) -> Fraction:
    return Fraction(p - 1, v * m + p - 1)


SCHEDULES.add(
    Schedule(
        name="naive", label="naive", order=naive,
        bubble=lambda p, m, v: Fraction(p - 1, p), bubble_words="(p−1)/p", in_flight=lambda p, m, v, rank: 1,
    )
)  # fmt: skip
SCHEDULES.add(
    Schedule(
        name="gpipe", label="GPipe", order=gpipe,
        bubble=_filling, bubble_words="(p−1)/(m+p−1)", in_flight=lambda p, m, v, rank: m,
    )
)  # fmt: skip
SCHEDULES.add(
    Schedule(
        name="1f1b", label="1F1B", order=one_f_one_b,
        bubble=_filling, bubble_words="(p−1)/(m+p−1)", in_flight=lambda p, m, v, rank: min(m, p - rank),
    )
)  # fmt: skip
SCHEDULES.add(
    Schedule(
        name="interleaved", label="interleaved 1F1B", order=interleaved,
        chunks=(2, None), needs_pipeline=True, legal=_whole_rounds,
        bubble=_filling, bubble_words="(p−1)/(vm+p−1)",
        in_flight=lambda p, m, v, rank: min(v * m, (v - 1) * p + 2 * (p - 1 - rank) + 1),
    )
)  # fmt: skip
