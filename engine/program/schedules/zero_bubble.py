"""Zero-bubble schedules: backwards in two parts, of which the weight part can wait for an idle moment.

The input part (I) of a backward makes the gradient that the stage before waits for; the weight part (W) makes the
gradients of the stage's own weights, which nobody needs before the step (Qi et al. 2023, Zero Bubble Pipeline
Parallelism, arXiv 2401.10241, section 6 for ZB-V; Qi et al. 2024, Pipeline Parallelism with Controllable Memory, has
more schedules of its V shape). Both parts of a stage come in micro-batch order, so that gradients add up as under 1F1B
and give the same bits.

Bubbles, as fractions of the total with forward, input and weight part equally long, F = I = W: (p−1)/(3vm+p−1). ZB-H1
idles (p−1)(F+I−W) from m = p on (Qi et al. 2023, section 2.3); ZB-H2 and ZB-V from m = 2p−1 on only (p−1)F, the last
rank's wait for its first micro-batch, which the paper's own rate leaves out (`DryRun.span_bubble`). Micro-batches held
until their weight parts: ZB-H1 p, ZB-H2 2p−1 (Qi et al. 2023, section 2), ZB-V 2p chunks and, while few micro-batches
fill it, m+1+r.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import count

from engine.job.schedules import SCHEDULES, Schedule
from engine.program.kinds import Kind
from engine.program.program import Action, Lanes, lanes_of
from engine.program.schedules.one_f_one_b import forward


def backward_input(stage: int, microbatch: int) -> Action:
    """The part of a stage's backward that the stage before waits for."""
    return Action(Kind.BACKWARD_INPUT, microbatch=microbatch, stage=stage)


def backward_weight(stage: int, microbatch: int) -> Action:
    """The part of a stage's backward that makes the gradients of its weights."""
    return Action(Kind.BACKWARD_WEIGHT, microbatch=microbatch, stage=stage)


def zb_h1(p: int, m: int, v: int) -> Lanes:
    """1F1B's memory and a third of its bubble: rank r runs its weight parts r micro-batches late (2023, section 2.1).

    Every rank then holds p micro-batches until their weight parts.
    """
    return lanes_of(_delayed(r, m, warmup=p - 1 - r, lag=r) for r in range(p))


def zb_h2(p: int, m: int, v: int) -> Lanes:
    """No rank idles between its first and its last action, for twice 1F1B's memory (2023, section 2.2).

    2(p−r)−1 forwards of warm-up and weight parts 2r micro-batches late: 2p−1 micro-batches held on every rank.
    """
    return lanes_of(_delayed(r, m, warmup=2 * (p - 1 - r), lag=2 * r) for r in range(p))


def _delayed(stage: int, m: int, warmup: int, lag: int) -> Iterator[Action]:
    """`warmup` forwards, then in turn a forward, an input part and the weight part of `lag` micro-batches before."""
    for k in range(min(warmup, m)):
        yield forward(stage, k)
    for k in range(m):
        if k + warmup < m:
            yield forward(stage, k + warmup)
        yield backward_input(stage, k)
        if k >= lag:
            yield backward_weight(stage, k - lag)
    for k in range(max(m - lag, 0), m):
        yield backward_weight(stage, k)


def zb_v(p: int, m: int, v: int) -> Lanes:
    """Two chunks a rank, down the ranks and back up: first and last stage share rank 0 (2024, section 3 and ZB-V).

    With equal times for forward, input and weight part no rank idles between its first and its last action, and each
    holds p whole micro-batches (2p chunks), as the first rank under 1F1B. The pattern needs 2p−1 micro-batches to
    close; with fewer it is laid out for so many and what is too much is left out.
    """
    enough = max(m, 2 * p - 1)
    return lanes_of((a for a in _v_shape(p, r, enough) if (a.microbatch or 0) < m) for r in range(p))


def _v_shape(p: int, r: int, m: int) -> Iterator[Action]:
    """Rank r's actions in letters, a chunk's forward, input and weight part: `f i w` going down, `F I W` coming up."""
    whole = "FIW"
    warm = "f" * (2 * (p - r) - 1) + "Ff" * r + whole * (p - r)
    left, begun = m - warm.count("f"), warm.count("F")
    steady = ("fiw" + whole) * left + ("iw" + whole) * (m - begun - left)
    parted, closing = "iI" * r, "iw" * (p - r)
    rest = "W" * r + "w" * r
    down, up = r, 2 * p - 1 - r
    does = {"f": forward, "i": backward_input, "w": backward_weight}
    microbatch = {letter: count() for letter in "fiwFIW"}
    for letter in warm + steady + parted + closing + rest:
        yield does[letter.lower()](down if letter.islower() else up, next(microbatch[letter]))


def down_and_back(p: int, stage: int) -> int:
    """Stages go down the ranks and back up: first and last share rank 0."""
    return stage if stage < p else 2 * p - 1 - stage


def _idle(p: int, m: int, v: int, enough: int) -> Fraction | None:
    return Fraction(p - 1, 3 * v * m + p - 1) if m >= enough else None


SCHEDULES.add(
    Schedule(
        name="zb-h1", label="ZB-H1", order=zb_h1, needs_pipeline=True,
        bubble=lambda p, m, v: _idle(p, m, v, enough=p), bubble_words="(p−1)/(3m+p−1)",
        in_flight=lambda p, m, v, rank: min(m, p),
    )
)  # fmt: skip
SCHEDULES.add(
    Schedule(
        name="zb-h2", label="ZB-H2", order=zb_h2, needs_pipeline=True,
        bubble=lambda p, m, v: _idle(p, m, v, enough=2 * p - 1), bubble_words="(p−1)/(3m+p−1)",
        in_flight=lambda p, m, v, rank: min(m, 2 * p - 1),
    )
)  # fmt: skip
SCHEDULES.add(
    Schedule(
        name="zb-v", label="ZB-V", order=zb_v, placement=down_and_back, chunks=(2, 2), needs_pipeline=True,
        bubble=lambda p, m, v: _idle(p, m, v, enough=2 * p - 1), bubble_words="(p−1)/(6m+p−1)",
        in_flight=lambda p, m, v, rank: min(2 * p, 2 * m, m + 1 + rank),
    )
)  # fmt: skip
