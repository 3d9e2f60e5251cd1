"""Step times of plans in closed form, without programs: what `engine.prediction.simulate` finds, for thousands of plans
at once.

Costs are the replay's own: units by `compute_seconds`, communication by `group_cost` and `message_seconds`; left out
is what only slow hosts and shared cores add (`engine.prediction.replay.op_seconds`). What is approximated is how they
fit together (`engine.planner.estimate.pipeline_time`, `.data_time`). On a cluster of unequal devices the slowest sets
the pace of all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.cluster.cluster import Cluster, Device
from engine.cluster.roofline import compute_seconds
from engine.job.job import Job, Recompute
from engine.job.mesh import Mesh
from engine.model.params import unit_size
from engine.model.units import TOKENS
from engine.planner.estimate.communication_times import MeshTimes, Places
from engine.planner.estimate.distinct_stages import UNITS, LaneKind, held, lane_kinds
from engine.planner.estimate.exposed_data_parallel import Exposed, Passes, exposed
from engine.planner.estimate.memory import Sizes, sizes
from engine.planner.estimate.pipeline_time import PIPELINE_SECONDS, Lanes
from engine.planner.estimate.unit_costs import StepCosts, UnitCosts, step_costs
from engine.planner.plans import RECOMPUTES, Shape, Space, Variants, divisors, split

Floats = NDArray[np.float64]
PARTS = ("compute", "recompute", "tensor", "pipeline", "data", "bubble", "optimizer")
"""What a step is made of, on the busiest pipeline rank: computing, computing again, waiting for tensor collectives, for
messages, and for the data axis, idling because of the schedule or of unequal stages, and the optimizer step."""
F, B, R = range(3)


class Estimator:
    """Estimates plans of one space on one cluster, all of the same number of ranks."""

    def __init__(
        self, space: Space, cluster: Cluster, ranks: int, tps: Iterable[int], kept: Path | None = None
    ) -> None:
        cluster.check_size(ranks)
        self.kept = kept
        self.space, self.cluster, self.job = space, cluster, space.job
        self.places = Places(cluster, ranks)
        self.units = UnitCosts(space.job, tuple(tps), cluster.backend, kept)
        self.sizes_of_batch = np.array(divisors(space.job.training.batch), np.float64)
        self._meshes: dict[tuple[int, int, int], MeshTimes] = {}
        self._tables: dict[object, Floats] = {}
        self._steps: dict[int, StepCosts] = {}
        self._sizes: dict[int, Sizes] = {}

    def unit_sizes(self, tp: int) -> Sizes:
        if tp not in self._sizes:
            self._sizes[tp] = sizes(self.job, tp)
        return self._sizes[tp]

    def parts(self, shape: Shape, many: Variants) -> Floats:
        """Seconds of each of PARTS for each plan; a step takes their sum."""
        times = self._mesh(shape)
        batch = self.job.training.batch // shape.dp // many.microbatches
        table = self._units(shape.tp, times)
        at = np.searchsorted(self.sizes_of_batch, batch)
        unit = table[:, :, :, many.sequence, many.recompute, at]  # [3 units, F B R, computing or tensor, plans]
        kinds = lane_kinds(self.job, shape)
        whole = unit.sum(axis=2)
        waits = [
            self._exposed(shape, many, kind, times, Passes(whole[:, F], whole[:, B], whole[:, R])) for kind in kinds
        ]
        counts = np.stack([kind.counts for kind in kinds])
        busy = np.einsum("ku,udcv->kdcv", counts, unit)
        lanes = self._lanes(shape, many, kinds, busy, waits, times)
        return self._added_up(shape, many, lanes, busy, waits, kinds, times)

    def _lanes(
        self, shape: Shape, many: Variants, kinds: tuple[LaneKind, ...], busy: Floats, waits: list[Floats],
        times: MeshTimes,
    ) -> Lanes:  # fmt: skip
        which = _kind_of_lane(kinds, shape.pp)
        forward = busy[:, F].sum(axis=1) + np.stack([w[0] for w in waits])
        backward = busy[:, B].sum(axis=1) + busy[:, R].sum(axis=1) + np.stack([w[1] for w in waits])
        hop = np.zeros((shape.pp, len(many)))
        if shape.pp > 1:
            batch = self.job.training.batch // shape.dp // many.microbatches
            message = self.unit_sizes(shape.tp).message[many.sequence] * batch
            hop = np.stack([one(message) for one in times.hops])
        return Lanes(
            forward[which], backward[which], hop, many.microbatches.astype(float), shape.chunks, self.job.plan.overlap
        )

    def _added_up(
        self, shape: Shape, many: Variants, lanes: Lanes, busy: Floats, waits: list[Floats],
        kinds: tuple[LaneKind, ...], times: MeshTimes,
    ) -> Floats:  # fmt: skip
        m, everyone = many.microbatches, np.arange(len(many))
        which = _kind_of_lane(kinds, shape.pp)
        pipeline = PIPELINE_SECONDS[shape.schedule]
        without = pipeline(dataclasses.replace(lanes, hop=np.zeros_like(lanes.hop)))
        slowest = lanes.work.argmax(axis=0)
        kind = which[slowest]
        drain = lanes.backward / shape.chunks + lanes.hop
        head_start = np.cumsum(drain, axis=0) - drain  # how long before rank 0 a rank does its last backward
        end = np.maximum((np.stack([w[2] for w in waits])[which] - head_start).max(axis=0), 0)
        step, after = self._step(shape, many, kinds), np.stack([w[3] for w in waits])
        last = (step + after).argmax(axis=0)
        in_batches = m * (np.stack([w[0] + w[1] for w in waits])[kind, everyone])
        parts = np.zeros((len(PARTS), len(many)))
        parts[0] = m * busy[kind, : B + 1, 0, everyone].sum(axis=1)
        parts[1] = m * busy[kind, R, :, everyone].sum(axis=1)
        parts[2] = m * busy[kind, : B + 1, 1, everyone].sum(axis=1)
        parts[3] = pipeline(lanes) - without
        parts[4] = in_batches + end + after[last, everyone] + self._tie(shape, many, times)
        parts[5] = without - m * lanes.work.max(axis=0)
        parts[6] = step[last, everyone] + self._scalars(times)
        return parts

    def _exposed(self, shape: Shape, many: Variants, kind: LaneKind, times: MeshTimes, passes: Passes) -> Floats:
        """Waiting for the data axis, and for sums of replicated gradients: the fields of `Exposed`, [4, plans]."""
        out = np.zeros((4, len(many)))
        for zero in range(4):
            mine = many.zero == zero
            if not mine.any():
                continue
            has = held(self.job, shape, kind, zero)
            if shape.dp > 1:
                these = Passes(passes.forward[:, mine], passes.backward[:, mine], passes.recompute[:, mine])
                found = exposed(self.job, has, kind, zero, times, these)
            else:
                found = Exposed()
            for i, value in enumerate((found.forward, found.backward, found.end, found.after)):
                out[i, mine] += value
            norms = times.seconds("tp", "all_reduce", has.replicated * self.job.precision.grad) * (has.replicated > 0)
            sums = float(norms.sum() if shape.dp > 1 else norms[-1])  # waited for at once, or at the end
            out[1 if zero >= 2 else 2, mine] += sums * many.sequence[mine]
        return out

    def _tie(self, shape: Shape, many: Variants, times: MeshTimes) -> Floats:
        """The gradients of a matrix that both ends hold, summed after everything else."""
        if shape.pp == 1 or not self.job.model.tied:
            return np.zeros(len(many))
        whole = unit_size(self.job.model, {"tp": shape.tp}, TOKENS)
        elements = np.where(many.zero > 0, -(-whole // shape.dp), whole)
        return times.seconds("tie", "all_reduce", elements * self.job.precision.grad)

    def _scalars(self, times: MeshTimes) -> float:
        """Two doubles summed over every axis, for the loss and the gradient norm."""
        return float(sum(times.seconds(axis, "all_reduce", 16) for axis in times.mesh.axes))

    def _step(self, shape: Shape, many: Variants, kinds: tuple[LaneKind, ...]) -> Floats:
        """Seconds of the optimizer step, [kinds, plans]."""
        out = np.zeros((len(kinds), len(many)))
        for zero in np.flatnonzero(np.bincount(many.zero)).tolist():
            if zero not in self._steps:
                self._steps[zero] = step_costs(self.job, zero, self.cluster.backend, self.kept)
            for k, kind in enumerate(kinds):
                has = held(self.job, shape, kind, zero)
                columns = self._steps[zero].columns(int(has.shard.sum()), int(has.padded.sum()), len(has.shard))
                out[k, many.zero == zero] = self._compute(columns)
        return out

    def _mesh(self, shape: Shape) -> MeshTimes:
        key = (shape.dp, shape.tp, shape.pp)
        if key not in self._meshes:
            order = tuple(self.job.plan.order.split("-"))
            self._meshes[key] = MeshTimes(Mesh(order, dp=shape.dp, tp=shape.tp, pp=shape.pp), self.places)
        return self._meshes[key]

    @cached_property
    def devices(self) -> list[Device]:
        found = [self.cluster.device_of(rank, self.places.world) for rank in range(self.places.world)]
        return list({id(device): device for device in found}.values())

    @cached_property
    def speed(self) -> float:
        return min(self.cluster.speed_of(rank, self.places.world) for rank in range(self.places.world))

    def _compute(self, columns: Floats) -> Floats:
        precision = self.job.training.precision
        each = [compute_seconds(device, precision, *columns) for device in self.devices]
        return np.asarray(np.maximum.reduce(each) / self.speed)

    def _units(self, tp: int, times: MeshTimes) -> Floats:
        """[3 units, F B R, computing or tensor collectives, 2 sequence parallel, 3 recompute, micro-batch sizes]."""
        key = (tp, tuple(id(cost) for cost in times.costs("tp")))
        if key not in self._tables:
            self._tables[key] = self._unit_table(tp, times)
        return self._tables[key]

    def _unit_table(self, tp: int, times: MeshTimes) -> Floats:
        plan, fixed = self.job.plan, self.space.fixed
        table = np.zeros((3, 3, 2, 2, 3, len(self.sizes_of_batch)))
        scatters = [False, True] if tp > 1 and self.job.model.seq % tp == 0 else [False]
        if "sequence_parallel" in fixed:
            scatters = [plan.sequence_parallel and tp > 1]
        chosen = [plan.recompute] if "recompute" in fixed else list(RECOMPUTES)
        for scatter in scatters:
            for recompute in chosen:
                for u, unit in enumerate(UNITS):
                    found = self._passes(unit, tp, scatter, recompute, times)
                    table[u, :, :, int(scatter), RECOMPUTES.index(recompute)] = found
        return table

    def _passes(self, unit: str, tp: int, scatter: bool, recompute: Recompute, times: MeshTimes) -> Floats:
        """[F B R, computing or tensor collectives, sizes]. R: what a backward costs more than without recomputation."""
        forward = self._pass("forward", unit, tp, scatter, "none", times)
        backward = self._pass("backward", unit, tp, scatter, "none", times)
        again = np.zeros_like(forward)
        if recompute == "full" and unit == "block":
            again = forward
        elif recompute == "selective" and unit == "block":
            again = self._pass("backward", unit, tp, scatter, "selective", times) - backward
            forward = self._pass("forward", unit, tp, scatter, "selective", times)
        return np.stack([forward, backward, again])

    def _pass(self, kind: str, unit: str, tp: int, scatter: bool, recompute: Recompute, times: MeshTimes) -> Floats:
        compute = self._compute(self.units.columns(kind, unit, tp, scatter, recompute, self.sizes_of_batch))
        tensor = np.zeros_like(compute)
        for op, nbytes in self.units.inside(kind, unit, tp, scatter, recompute):
            tensor = tensor + times.seconds("tp", op, nbytes * self.sizes_of_batch)
        return np.stack([compute, tensor])


def estimate(job: Job, cluster: Cluster) -> dict[str, float]:
    """Seconds of a step by PARTS. The job must have passed `rules.check`."""
    space, shape, one = split(job)
    found = Estimator(space, cluster, job.world_size, [shape.tp]).parts(shape, one)
    return dict(zip(PARTS, found[:, 0].tolist(), strict=True))


def _kind_of_lane(kinds: tuple[LaneKind, ...], pp: int) -> NDArray[np.int64]:
    which = np.zeros(pp, np.int64)
    for k, kind in enumerate(kinds):
        which[list(kind.lanes)] = k
    return which
