"""What the units of a model cost under every tensor degree and micro-batch size, from a few executions.

Costs are sums over operators of shapes, so FLOPs, bytes and operator counts are linear in the sequences of a
micro-batch b (from 2 on: with one sequence some copies become views) and affine in 1/t. Executions on meta tensors at
b = 1, 2, 4 and at the least and greatest t give all others exactly, but for the padding of a vocabulary that t does not
divide.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.cluster.collectives import full_bytes
from engine.job.job import Job, Model, Plan, Recompute, Training
from engine.model.buckets import buckets_of_pp_rank
from engine.planner.estimate.events import UNITS
from engine.prediction.op_templates.template_cache import alone_templates, unit_templates
from engine.prediction.op_templates.templates import Template
from engine.prediction.replay.op_seconds import COSTS
from engine.program.kinds import Kind
from engine.program.program import Action

Floats = NDArray[np.float64]
Inside = tuple[tuple[str, int], ...]
"""(operation, bytes of its full tensor for one sequence) of the collectives inside a computation."""
ANCHORS = (1, 2, 4)
SPLIT = (Kind.BACKWARD_INPUT.name, Kind.BACKWARD_WEIGHT.name)


@dataclass(eq=False)
class UnitCosts:
    """Of the model of `job` at any of the tensor degrees `tps`. Executes what is asked for, once."""

    job: Job
    tps: tuple[int, ...]
    backend: str
    cache_dir: Path | None = None
    """Where templates are kept, see `engine.prediction.op_templates.template_cache`."""
    _known: dict[tuple[int, int, bool, Recompute, bool], dict[tuple[str, str], Template]] = field(default_factory=dict)

    def columns(self, kind: str, unit: str, tp: int, scatter: bool, recompute: Recompute, size: Floats) -> Floats:
        """The columns of COSTS for micro-batches of so many sequences, [costs, sizes]."""
        several = self._splits(scatter)
        low, high = (min(several), max(several)) if tp > 1 else (1, 1)
        share = 0.0 if low == high else (1 / tp - 1 / high) / (1 / low - 1 / high)
        one, two, four = (
            share * self._executed(low, b, scatter, recompute, kind, unit)
            + (1 - share) * self._executed(high, b, scatter, recompute, kind, unit)
            for b in ANCHORS
        )
        line = two[:, None] + (four - two)[:, None] / 2 * (size - 2)
        return np.where(size == 1, one[:, None], line)

    def inside(self, kind: str, unit: str, tp: int, scatter: bool, recompute: Recompute) -> Inside:
        """The tensor collectives inside a computation, which have the same sizes at every tp > 1."""
        if tp == 1:
            return ()
        t = max(self._splits(scatter))
        template = self._templates(t, 1, scatter, recompute, kind in SPLIT)[kind, unit]
        return tuple((p.op, int(full_bytes(p.op, t, p.cost.logical_bytes))) for p in template[1:])

    def _splits(self, scatter: bool) -> list[int]:
        """The tensor degrees above 1 that can be executed: under sequence parallelism they divide the sequence."""
        return [t for t in self.tps if t > 1 and not (scatter and self.job.model.seq % t)]

    def _executed(self, tp: int, b: int, scatter: bool, recompute: Recompute, kind: str, unit: str) -> Floats:
        piece = self._templates(tp, b, scatter, recompute, kind in SPLIT)[kind, unit][0]
        return np.array([getattr(piece.cost, name) for name in COSTS], np.float64)

    def _templates(
        self, tp: int, b: int, scatter: bool, recompute: Recompute, split: bool
    ) -> dict[tuple[str, str], Template]:
        key = (tp, b, scatter, recompute, split)
        if key not in self._known:
            plan = Plan(tp=tp, microbatches=1, sequence_parallel=scatter, recompute=recompute)
            one = dataclasses.replace(self.job, plan=plan, training=dataclasses.replace(self.job.training, batch=b))
            self._known[key] = unit_templates(one, self.backend, self.cache_dir, split)
        return self._known[key]


assert UNITS == ("embedding", "block", "head")  # the unit kinds that templates go by


@dataclass(frozen=True, eq=False)
class StepCosts:
    """The norm or an update of a ZeRO stage. per: touched bytes per element of shards, of whole buckets, and constant.

    operators: per bucket, and constant. Nothing in it multiplies matrices.
    """

    per: Floats
    operators: Floats

    def columns(self, shard: Floats, whole: Floats, buckets: int) -> Floats:
        """The columns of COSTS, [costs, plans]. shard, whole: elements of each plan's shards and buckets."""
        costs = {
            "touched_bytes": self.per @ np.stack([shard, whole, np.ones_like(shard)]),
            "operators": np.full(len(shard), float(self.operators @ (buckets, 1))),
        }
        return np.stack([costs.get(name, np.zeros(len(shard))) for name in COSTS])


def step_costs(job: Job, zero: int, backend: str, cache_dir: Path | None = None) -> dict[Kind, StepCosts]:
    """Of the gradient norm and of an update, found by executing those of small models.

    It only matters how many elements and buckets there are.
    """
    rows: dict[Kind, list[tuple[int, ...]]] = {Kind.NORM: [], Kind.UPDATE: []}
    for layers, dp in ((1, 2), (3, 2), (3, 4)):
        model = Model(layers=layers, hidden=64, heads=1, seq=16, vocab=256)
        plan = Plan(dp=dp, zero=zero, microbatches=1)
        training = Training(batch=dp, precision=job.training.precision, clip=job.training.clip)
        small = Job(model=model, plan=plan, training=training)
        buckets = {b.name: b for b in buckets_of_pp_rank(small, 0)}
        actions = [Action(Kind.NORM), *(Action(Kind.UPDATE, name) for name in buckets)]
        for a, (piece, *_) in alone_templates(small, 0, actions, backend, cache_dir).items():
            mine = [buckets[a.unit]] if a.unit else list(buckets.values())
            shard, whole = sum(b.shard for b in mine), sum(b.padded for b in mine)
            rows[a.kind].append((shard, whole, 1, len(mine), piece.cost.touched_bytes, piece.cost.operators))
    found = {}
    for kind, measured in rows.items():
        table = np.array(measured, np.float64)
        per = np.linalg.lstsq(table[:, :3], table[:, 4], rcond=None)[0]
        each = np.linalg.lstsq(table[:, [3, 2]], table[:, 5], rcond=None)[0]
        found[kind] = StepCosts(np.asarray(per, np.float64), np.asarray(each, np.float64))
    return found
