"""What the prices of an outline are for many plans: seconds by the cost functions of the replay.

Units cost what `compute_seconds` says of their executions, communication what `group_cost` and `message_seconds` say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.cluster.cluster import Cluster
from engine.cluster.roofline import compute_seconds
from engine.job.job import Recompute
from engine.job.mesh import Mesh
from engine.job.nearest import divisors
from engine.model.params import replicated_size, unit_size
from engine.model.units import TOKENS
from engine.planner.estimate.distinct_stages import whole_backwards
from engine.planner.estimate.events import (
    HOST,
    UNITS,
    WORKS,
    Collective,
    Counts,
    Message,
    Outline,
    Price,
    Scalars,
    Step,
    Work,
)
from engine.planner.estimate.memory import Sizes, sizes
from engine.planner.estimate.places import MeshPlaces, Places
from engine.planner.estimate.unit_costs import SPLIT, StepCosts, UnitCosts, step_costs
from engine.planner.plans import RECOMPUTES, Shape, Space, Variants
from engine.program.kinds import Kind

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
COMPUTING, TENSOR = 0, 1
DOUBLES = 16
"""Bytes of the loss and the squared gradient norm, which the step sums over every axis."""


@dataclass(frozen=True, eq=False)
class Block:
    """Plans of one shape: what their prices are made of. size: sequences of a micro-batch of each plan."""

    shape: Shape
    plans: Variants
    size: Numbers
    mesh: MeshPlaces


class Prices:
    """The costs of the plans of a space on `ranks` ranks of a cluster. Finds each out once."""

    def __init__(
        self, space: Space, cluster: Cluster, ranks: int, tps: Iterable[int], cache_dir: Path | None = None
    ) -> None:
        cluster.check_size(ranks)
        self.space, self.cluster, self.job, self.cache_dir = space, cluster, space.job, cache_dir
        self.places = Places(cluster, ranks)
        self.units = UnitCosts(space.job, tuple(tps), cluster.backend, cache_dir)
        self.sizes_of_batch = np.array(divisors(space.job.training.batch), np.float64)
        self._meshes: dict[tuple[int, int, int], MeshPlaces] = {}
        self._tables: dict[tuple[int, int, int, bool], Floats] = {}
        self._steps: dict[int, dict[Kind, StepCosts]] = {}
        self._sizes: dict[int, Sizes] = {}

    def unit_sizes(self, tp: int) -> Sizes:
        if tp not in self._sizes:
            self._sizes[tp] = sizes(self.job, tp)
        return self._sizes[tp]

    def mesh(self, shape: Shape) -> MeshPlaces:
        key = (shape.dp, shape.tp, shape.pp)
        if key not in self._meshes:
            order = tuple(self.job.plan.order.split("-"))
            self._meshes[key] = MeshPlaces(Mesh(order, dp=shape.dp, tp=shape.tp, pp=shape.pp), self.places)
        return self._meshes[key]

    def block(self, shape: Shape, plans: Variants) -> Block:
        return Block(shape, plans, self.job.training.batch // shape.dp // plans.microbatches, self.mesh(shape))

    def seconds(self, outline: Outline, block: Block) -> Floats:
        """Seconds of every price of an outline, [prices, columns, plans]."""
        columns = block.mesh.tensor.shape[0]
        out = np.zeros((len(outline.prices), columns, len(block.plans)))
        works: dict[int, list[int]] = {}
        for i, price in enumerate(outline.prices):
            if isinstance(price, Work):
                works.setdefault(price.pp_rank, []).append(i)
            else:
                out[i] = self._price(price, block)
        for pp_rank, these in works.items():
            counts = np.array([price.counts for price in (outline.prices[i] for i in these) if isinstance(price, Work)])
            for column in range(columns):
                out[these, column] = counts @ self.work(block, column, pp_rank).sum(axis=1)
        return out

    def work(self, block: Block, column: int, pp_rank: int, split: bool | None = None, again: bool = True) -> Floats:
        """[UNITS × WORKS and the host's, computing or tensor collectives, plans] of a rank.

        split: whether the parts of a backward are wanted too, by default where the schedule has them. again: with what
        is computed again.
        """
        split = not whole_backwards(block.shape.schedule) if split is None else split
        mesh = block.mesh
        table = self._units(
            block.shape.tp, mesh, int(mesh.devices[column, pp_rank]), int(mesh.tensor[column, pp_rank]), split
        )
        at = np.searchsorted(self.sizes_of_batch, block.size)
        recompute = block.plans.recompute if again else np.zeros_like(block.plans.recompute)
        return np.asarray(table[:, :, block.plans.sequence, recompute, at])

    def fastest_block(self, tp: int) -> float:
        """Seconds that the forward and the backward of a block compute for one sequence at least, at any setting."""
        found = [
            (table[len(WORKS) + WORKS.index(Kind.FORWARD)] + table[len(WORKS) + WORKS.index(Kind.BACKWARD)])[COMPUTING]
            / self.sizes_of_batch
            for (degree, *_), table in self._tables.items()
            if degree == tp
        ]
        asked = np.concatenate([times[times > 0] for times in found]) if found else np.zeros(1)
        return float(asked.min())

    def _price(self, price: Price, block: Block) -> Floats:
        """[columns, plans], or of a shape that spreads to it."""
        if isinstance(price, Message):
            nbytes = self.unit_sizes(block.shape.tp).message[block.plans.sequence] * block.size
            fixed, each = block.mesh.hops[:, :, price.hop, None]
            return np.asarray(fixed + each * nbytes)
        if isinstance(price, Scalars):
            return block.mesh.slowest(price.axis, "all_reduce", DOUBLES, price.pp_rank)
        if isinstance(price, Step):
            return self._step(price, block)
        assert isinstance(price, Collective)
        return self.collective(price, block)

    def collective(self, price: Collective, block: Block) -> Floats:
        """[plans]. Those that a plan does not have take no time in it."""
        plans, e, mesh = block.plans, self.job.precision, block.mesh
        if price.axis == "tp":
            norms = self._elements(price.holds, block.shape.tp, replicated=True) * e.grad
            return np.asarray(mesh.slowest("tp", "all_reduce", norms, price.pp_rank) * plans.sequence)
        shard = self._shard(price.holds, block)
        if price.axis == "tie":
            return mesh.slowest("tie", "all_reduce", shard * e.grad)
        padded = np.where(plans.zero > 0, shard * block.shape.dp, shard)
        if price.gathers:
            return np.asarray(mesh.slowest("dp", "all_gather", padded * e.compute, price.pp_rank) * (plans.zero > 0))
        whole, parts = (
            mesh.slowest("dp", op, padded * e.grad, price.pp_rank) for op in ("all_reduce", "reduce_scatter")
        )
        return np.where(plans.zero > 0, parts, whole)

    def _elements(self, holds: Counts, tp: int, replicated: bool = False) -> int:
        size = replicated_size if replicated else unit_size
        names = ("embedding", "block0", "head", TOKENS)
        return sum(n * size(self.job.model, {"tp": tp}, name) for n, name in zip(holds, names, strict=True) if n)

    def _shard(self, holds: Counts, block: Block) -> Numbers:
        """Elements of a bucket of each plan on one rank; the whole bucket without ZeRO."""
        whole = self._elements(holds, block.shape.tp)
        return np.where(block.plans.zero > 0, -(-whole // block.shape.dp), whole)

    def _step(self, price: Step, block: Block) -> Floats:
        plans = block.plans
        shard = np.sum([self._shard(holds, block) for holds in price.buckets], axis=0).astype(float)
        whole = np.where(plans.zero > 0, np.ceil(shard) * block.shape.dp, shard)
        out = np.zeros((block.mesh.devices.shape[0], len(plans)))
        for zero in np.flatnonzero(np.bincount(plans.zero)).tolist():
            if zero not in self._steps:
                self._steps[zero] = step_costs(self.job, zero, self.cluster.backend, self.cache_dir)
            mine = plans.zero == zero
            columns = self._steps[zero][price.kind].columns(shard[mine], whole[mine], len(price.buckets))
            for c, devices in enumerate(block.mesh.devices[:, price.pp_rank].tolist()):
                out[c, mine] = self._compute(devices, columns)
        return out

    def _compute(self, devices: int, columns: Floats) -> Floats:
        """Seconds of the slowest of the devices in a set, see `MeshPlaces.devices`."""
        precision, speeds = self.job.training.precision, self.places.speeds[0]
        each = [
            compute_seconds(device, precision, *columns) / factor
            for i, (device, factor) in enumerate(speeds)
            if devices >> i & 1
        ]
        return np.asarray(np.maximum.reduce(each))

    def _units(self, tp: int, mesh: MeshPlaces, devices: int, tensor: int, split: bool) -> Floats:
        """[UNITS × WORKS and host, computing or tensor collectives, sequence parallel, recompute, sizes of batch]."""
        key = (tp, devices, tensor, split)
        if key not in self._tables:
            self._tables[key] = self._unit_table(tp, mesh, devices, tensor, split)
        return self._tables[key]

    def _unit_table(self, tp: int, mesh: MeshPlaces, devices: int, tensor: int, split: bool) -> Floats:
        plan, fixed = self.job.plan, self.space.fixed
        table = np.zeros((HOST + 1, 2, 2, 3, len(self.sizes_of_batch)))
        table[HOST, COMPUTING] = max(
            device.host_s / factor for i, (device, factor) in enumerate(self.places.speeds[0]) if devices >> i & 1
        )
        scatters = [False, True] if tp > 1 and self.job.model.seq % tp == 0 else [False]
        if "sequence_parallel" in fixed:
            scatters = [plan.sequence_parallel and tp > 1]
        chosen = sorted({"none", plan.recompute}) if "recompute" in fixed else list(RECOMPUTES)
        for scatter in scatters:
            for recompute in chosen:
                for place, (unit, kind) in enumerate((unit, kind) for unit in UNITS for kind in WORKS):
                    if self._has(unit, kind, recompute, split):
                        found = self._pass(kind, unit, tp, scatter, recompute, mesh, devices, tensor)
                        table[place, :, int(scatter), RECOMPUTES.index(recompute)] = found
        return table

    @staticmethod
    def _has(unit: str, kind: Kind, recompute: Recompute, split: bool) -> bool:
        if kind is Kind.RECOMPUTE:
            return unit == "block" and recompute == "full"
        return kind.name not in SPLIT or (split and unit != "embedding")

    def _pass(
        self, kind: Kind, unit: str, tp: int, scatter: bool, recompute: Recompute, mesh: MeshPlaces, devices: int,
        tensor: int,
    ) -> Floats:  # fmt: skip
        """[computing or tensor collectives, sizes]. What is recomputed is a forward, and else a block as any other."""
        if kind is Kind.RECOMPUTE:
            kind = Kind.FORWARD
        if recompute == "full" or unit != "block":
            recompute = "none"
        columns = self.units.columns(kind.name, unit, tp, scatter, recompute, self.sizes_of_batch)
        inside = self.units.inside(kind.name, unit, tp, scatter, recompute)
        host = max(device.host_s / factor for device, factor in self.places.speeds[0])
        compute = self._compute(devices, columns) + len(inside) * host
        collectives = np.zeros_like(compute)
        for op, nbytes in inside:
            collectives = collectives + mesh.seconds((tensor,), op, nbytes * self.sizes_of_batch)
        return np.stack([compute, collectives])
