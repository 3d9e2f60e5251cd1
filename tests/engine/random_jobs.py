"""Jobs drawn at random: legal mixtures on purpose, and beside them some with one knob moved anywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from tests.engine.legal import Options, Order, Work, before, broken_rules, home

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v")
PLAN: dict[str, Any] = {
    "dp": 1, "tp": 1, "pp": 1, "zero": 0, "schedule": "1f1b", "microbatches": 4, "chunks": 1, "bucket_kb": 160,
    "prefetch": 1, "sequence_parallel": False, "overlap": True, "keep_gathered": False, "recompute": "none",
    "order": "tp-dp-pp", "partition": None,
}  # fmt: skip
MODELS = 10  # different ones among the legal jobs; those who share one share its one-process run
MOST_RANKS = 8
DEGREES = [d for d in product((1, 2, 3, 4), repeat=3) if d[0] * d[1] * d[2] <= MOST_RANKS]
AXES = {0: 2, 1: 8, 2: 8, 3: 2}  # how often a job uses so many axes

ANYWHERE: dict[str, tuple[Any, ...]] = {
    "dp": (0, 1, 2, 3), "tp": (1, 2, 3, 5), "pp": (0, 1, 2, 3), "zero": (-1, 0, 2, 4), "schedule": SCHEDULES,
    "microbatches": (0, 1, 3, 5, 7), "chunks": (0, 1, 2, 3), "sequence_parallel": (True,), "prefetch": (-1, 0, 5),
    "bucket_kb": (0, 2), "order": ("pp-dp-tp", "dp-tp", "tp-tp-pp", "dp-tp-pp-dp"), "layers": (0, 1, 2, 5),
    "hidden": (0, 16, 18, 25), "heads": (0, 1, 3, 5), "seq": (0, 5, 7), "vocab": (1, 255, 256), "batch": (0, 5, 6, 8),
    "steps": (0, 1), "clip": (-1.0, float("nan"), 0.01), "lr": (0.0, float("inf"), 1e-4), "dropout": (0.1,),
    "precision": ("mixed16",), "partition": ((1,), (1, 1), (1, 0), (2, 1, 1), (1, 1, 1, 1)),
}  # fmt: skip
"""Where one knob may be moved; other knobs decide for most of these whether that is legal."""


@dataclass(frozen=True)
class Drawn:
    """A job by all its options and, if its order is written by hand, that order."""

    options: Options
    order: Order | None

    @property
    def text(self) -> str:
        return "\n".join(map(" ".join, self.order or ()))


def draw_jobs(seed: int, count: int) -> Iterator[Drawn]:
    """The same jobs for the same seed. Four of five are legal; the fifth was, until one knob or word was moved."""
    rng = random.Random(seed)
    models = [_model(rng) for _ in range(MODELS)]
    for number in range(count):
        drawn = _legal(rng, models)
        yield _moved(rng, drawn) if number % 5 == 4 else drawn


def _model(rng: random.Random) -> Options:
    """Model and training: small, and with as many odd shapes as a split can meet."""
    heads = rng.choice((2, 3, 4, 6, 6))
    return {
        "layers": rng.choice((3, 4, 5, 6)), "heads": heads, "hidden": heads * rng.choice((4, 5, 8)),
        "seq": rng.choice((5, 12, 12)), "vocab": rng.choice((256, 257, 259)), "tied": rng.random() < 0.4,
        "batch": rng.choice((12, 24)), "steps": rng.choice((1, 2)), "clip": rng.choice((0.0, 0.1, 1.0)), "lr": 1e-3,
        "seed": rng.randrange(100), "dropout": 0.0, "precision": "fp32",
    }  # fmt: skip


def _legal(rng: random.Random, models: Sequence[Options]) -> Drawn:
    """Drawn again until no rule is broken, the number of axes excepted, which is drawn once."""
    axes = rng.choices(list(AXES), list(AXES.values()))[0]
    fitting = [d for d in DEGREES if sum(n > 1 for n in d) == axes]
    while True:
        degrees = rng.choices(fitting, [(d[0] * d[1] * d[2]) ** -2 for d in fitting])[0]  # mostly few ranks, for speed
        options = PLAN | rng.choice(models) | _plan(rng, degrees)
        if rng.random() < 0.2:
            options["partition"] = _partition(rng, options["layers"], options["pp"] * options["chunks"])
        if not broken_rules(options):
            by_hand = options["pp"] > 1 and rng.random() < 0.35
            return Drawn(options, _order(rng, options) if by_hand else None)


def _plan(rng: random.Random, degrees: tuple[int, int, int]) -> Options:
    dp, tp, pp = degrees
    schedule = rng.choice(SCHEDULES if pp > 1 else SCHEDULES[:3])
    chunks = {"interleaved": rng.choice((2, 3)), "zb-v": 2}.get(schedule, 1)
    return {
        "dp": dp, "tp": tp, "pp": pp, "zero": rng.randrange(4), "schedule": schedule, "chunks": chunks,
        "microbatches": rng.choice((1, 2, 3, 4)), "sequence_parallel": rng.random() < 0.5,
        "overlap": rng.random() < 0.7, "prefetch": rng.randrange(4), "keep_gathered": rng.random() < 0.3,
        "bucket_kb": rng.choice((1, 20, 25_600)), "recompute": rng.choice(("none", "none", "selective", "full")),
        "order": rng.choice(("tp-dp-pp", "pp-dp-tp", "dp-tp-pp", "dp-pp-tp")),
    }  # fmt: skip


def _partition(rng: random.Random, layers: int, stages: int) -> tuple[int, ...]:
    """Layers cut anywhere into stages of one or more, or even stages of one where there are too few."""
    if layers < stages:
        return (1,) * stages
    cuts = [0, *sorted(rng.sample(range(1, layers), stages - 1)), layers]
    return tuple(b - a for a, b in pairwise(cuts))


def _order(rng: random.Random, options: Options) -> Order:
    """A random topological order of the pipeline's work, each backward whole or in two parts.

    Letters weigh differently in each order, so that some run all forwards first and some finish each micro-batch.
    """
    pp, m, last = options["pp"], options["microbatches"], options["pp"] * options["chunks"] - 1
    places = list(product(range(last + 1), range(m)))
    share = rng.choice((0.0, 0.5, 1.0))
    split = {place for place in places if rng.random() < share}
    left: list[Work] = [("F", *place) for place in places]
    left += [(letter, *place) for place in places for letter in ("IW" if place in split else "B")]
    weights = {letter: rng.choice((1, 5, 50)) for letter in "FBIW"}
    done, lanes = set[Work](), [list[str]() for _ in range(pp)]
    while left:
        ready = [work for work in left if done.issuperset(before(work, last, split))]
        work = rng.choices(ready, [weights[letter] for letter, _, _ in ready])[0]
        left.remove(work)
        done.add(work)
        letter, stage, k = work
        chunk = f"c{stage // pp}" if last >= pp else ""
        lanes[home(options["schedule"], pp, stage)].append(f"{letter}{k}{chunk}")
    return tuple(map(tuple, lanes))


def _moved(rng: random.Random, drawn: Drawn) -> Drawn:
    """The job with one knob moved, or its order by hand with two words of a rank exchanged."""
    if drawn.order is not None:
        lanes = [list(lane) for lane in drawn.order]
        lane = rng.choice(lanes)
        i, j = rng.sample(range(len(lane)), 2)
        lane[i], lane[j] = lane[j], lane[i]
        return Drawn(drawn.options, tuple(map(tuple, lanes)))
    while True:
        name = rng.choice(list(ANYWHERE))
        options = drawn.options | {name: rng.choice(ANYWHERE[name])}
        if options["dp"] * options["tp"] * options["pp"] <= MOST_RANKS or broken_rules(options):
            return Drawn(options, None)
