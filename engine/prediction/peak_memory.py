"""Predicts the memory ledger by walking a program with closed-form sizes: each category's peak on each rank."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.buckets import lane_buckets
from engine.model.units import TOKENS, boundary_bytes, lane_units, needs
from engine.prediction.formulas import activation_bytes, held_for_weight_bytes, kept_bytes, state_bytes
from engine.program.compile import compile_job
from engine.program.dependencies import Waits, waits
from engine.program.program import ADDS_GRADIENT, RECEIVES, SENDS, Action, Kind, Program, boundary
from engine.recording.tables import CATEGORIES

Change = tuple[int, str, int, bool]
"""Position of an action (the lane's length: the end of the step), category, bytes more, whether after the action."""


def predicted_memory(job: Job, program: Program | None = None) -> list[dict[str, int]]:
    """Bytes on each rank: params, grads, optimizer, {activations,gathered,buffers,total}_peak."""
    mesh = mesh_of(job)
    lanes = [_lane_peaks(job, program or compile_job(job), z) for z in range(job.plan.pp)]
    return [{"rank": rank} | lanes[mesh.coordinate(rank).pp] for rank in range(mesh.size)]


@lru_cache(maxsize=64)
def total_bytes(job: Job) -> int:
    """All ranks' peaks together, what a machine that runs every rank must hold. Kept, since a form asks at each key."""
    copies = job.plan.dp * job.plan.tp
    return copies * sum(_lane_peaks(job, compile_job(job), z)["total_peak"] for z in range(job.plan.pp))


def _lane_peaks(job: Job, program: Program, z: int) -> dict[str, int]:
    held = dict.fromkeys(CATEGORIES, 0) | state_bytes(job, z)
    peaks, total = dict(held), sum(held.values())
    for _, category, nbytes, _ in lane_changes(job, program, z):
        held[category] += nbytes
        peaks[category] = max(peaks[category], held[category])
        total = max(total, sum(held.values()))
    state = {name: held[name] for name in ("params", "grads", "optimizer")}
    transient = {f"{name}_peak": peaks[name] for name in ("activations", "gathered", "buffers")}
    return state | transient | {"total_peak": total}


def lane_changes(job: Job, program: Program, z: int, known: Waits | None = None) -> Iterator[Change]:
    """What each action of a lane books, in order: the ledger's own rules (see `engine.recording.ledger`).

    known: the lane's waits, if they have been worked out already.
    """
    lane, waiting = program.lanes[z], known or waits(job, program, z)
    book = _Book(job, z)
    for i, before in enumerate(waiting.before):
        for j in before:
            yield from ((i, *change, False) for change in book.landed(lane[j]))
        yield from ((i, "buffers", -book.message[boundary(lane[j])], False) for j in waiting.forgets[i])
        if i < len(lane):
            yield from ((i, *change, change[0] in ("activations", "gathered")) for change in book.does(lane[i]))


class _Book:
    """The bookings of a lane's actions, with closed-form sizes."""

    def __init__(self, job: Job, z: int) -> None:
        self.job, self.zero, self.size = job, job.effective_zero, job.precision
        self.home = {unit: b for b in lane_buckets(job, z) for unit in b.units}
        self.named = {b.name: b for b in self.home.values()}
        self.message = boundary_bytes(job)
        units = [unit for unit in lane_units(job, z) if unit != TOKENS]
        self.kept = {unit: kept_bytes(job, unit) for unit in units}  # by forward
        self.whole = {unit: activation_bytes(job, unit) for unit in units}  # when backward begins
        self.left = {unit: held_for_weight_bytes(job, unit) for unit in units}  # by the input part of a split one
        self.open_gradients: set[str] = set()

    def landed(self, a: Action) -> Iterator[tuple[str, int]]:
        """When the communication that `a` started is waited for."""
        if a.kind in RECEIVES or a.kind in SENDS:
            yield "buffers", -self.message[boundary(a)]
        elif a.kind is Kind.REDUCE and a.axis == "dp" and self.zero >= 2:
            self.open_gradients.discard(a.unit)
            yield "buffers", -(self.named[a.unit].padded + self.named[a.unit].shard) * self.size.grad

    def does(self, a: Action) -> Iterator[tuple[str, int]]:
        """When `a` itself runs."""
        if a.kind in RECEIVES or a.kind in SENDS:
            yield "buffers", self.message[boundary(a)]
        elif a.kind is Kind.FORWARD:
            yield "activations", self.kept[a.unit]
        elif a.kind is Kind.RECOMPUTE:
            yield "activations", self.whole[a.unit] - self.kept[a.unit]
        elif a.kind is Kind.BACKWARD_INPUT:
            yield "activations", self.left[a.unit] - self.whole[a.unit]
        elif a.kind in ADDS_GRADIENT:
            yield from self._opened(a)
            yield "activations", -(self.whole if a.kind is Kind.BACKWARD else self.left)[a.unit]
        elif a.kind is Kind.REDUCE and a.axis == "dp" and self.zero >= 2:
            yield "buffers", self.named[a.unit].shard * self.size.grad
        elif a.kind in (Kind.GATHER, Kind.RELEASE) and self.zero == 3:
            whole = self.named[a.unit].padded * self.size.compute
            yield "gathered", whole if a.kind is Kind.GATHER else -whole

    def _opened(self, a: Action) -> Iterator[tuple[str, int]]:
        """ZeRO-2 and 3: the whole gradients of the units that a backward adds to."""
        for owner in (self.home[unit] for unit in needs(self.job.model, a.unit) if self.zero >= 2):
            if owner.name not in self.open_gradients:
                self.open_gradients.add(owner.name)
                yield "buffers", owner.padded * self.size.grad
