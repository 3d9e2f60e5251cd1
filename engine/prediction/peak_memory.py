"""Predicts the memory ledger by walking a program with closed-form sizes: each category's peak on each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.buckets import Bucket, buckets_of_pp_rank
from engine.model.units import TOKENS, boundary_bytes, needs, units_of_pp_rank
from engine.prediction.formulas import activation_bytes, held_for_weight_bytes, kept_bytes, state_bytes
from engine.program.compile import compile_job
from engine.program.dependencies import Waits, waits
from engine.program.kinds import Booking, Sizes
from engine.program.program import Action, Program, boundary
from engine.recording.tables import CATEGORIES

Change = tuple[int, str, int, bool]
"""Position of an action (the lane's length: the end of the step), category, bytes more, whether after the action."""


def predicted_memory(job: Job, program: Program | None = None) -> list[dict[str, int]]:
    """Bytes on each rank: params, grads, optimizer, {activations,gathered,buffers,total}_peak."""
    mesh = mesh_of(job)
    lanes = [_peaks_of(job, program or compile_job(job), pp_rank) for pp_rank in range(job.plan.pp)]
    return [{"rank": rank} | lanes[mesh.coordinate(rank).pp] for rank in range(mesh.size)]


@lru_cache(maxsize=64)
def total_bytes(job: Job) -> int:
    """All ranks' peaks together, what a machine that runs every rank must hold. Kept, since a form asks at each key."""
    copies = job.world_size // job.plan.pp
    return copies * sum(_peaks_of(job, compile_job(job), pp_rank)["total_peak"] for pp_rank in range(job.plan.pp))


def _peaks_of(job: Job, program: Program, pp_rank: int) -> dict[str, int]:
    held = dict.fromkeys(CATEGORIES, 0) | state_bytes(job, pp_rank)
    peaks, total = dict(held), sum(held.values())
    for _, category, nbytes, _ in lane_changes(job, program, pp_rank):
        held[category] += nbytes
        peaks[category] = max(peaks[category], held[category])
        total = max(total, sum(held.values()))
    state = {name: held[name] for name in ("params", "grads", "optimizer")}
    transient = {f"{name}_peak": peaks[name] for name in ("activations", "gathered", "buffers")}
    return state | transient | {"total_peak": total}


def lane_changes(job: Job, program: Program, pp_rank: int, known: Waits | None = None) -> Iterator[Change]:
    """What each action of a pipeline rank books, in order: the ledger's own rules (see `engine.recording.ledger`).

    known: its waits, if they have been worked out already.
    """
    lane, waiting = program.lanes[pp_rank], known or waits(job, program, pp_rank)
    sizes: Sizes = _Sizes(job, pp_rank)
    for i, before in enumerate(waiting.before):
        for j in before:
            yield from ((i, *change, False) for change in lane[j].kind.lands(sizes, lane[j]))
        yield from ((i, "buffers", -sizes.message(lane[j]), False) for j in waiting.forgets[i])
        if i < len(lane):
            books = lane[i].kind.books
            yield from ((i, *change, change[0] in ("activations", "gathered")) for change in books(sizes, lane[i]))


class _Sizes:
    """Closed-form sizes on a pipeline rank, and the whole gradients there are now; see `engine.program.kinds.Sizes`."""

    def __init__(self, job: Job, pp_rank: int) -> None:
        zero = job.effective_zero
        self.model, self.home = job.model, {unit: b for b in buckets_of_pp_rank(job, pp_rank) for unit in b.units}
        self.named: Mapping[str, Bucket] = {b.name: b for b in self.home.values()}
        self.parameter, self.gradient = job.precision.compute, job.precision.grad
        self.shards_gradients, self.shards_parameters = zero >= 2, zero == 3
        self._messages = boundary_bytes(job)
        units = [unit for unit in units_of_pp_rank(job, pp_rank) if unit != TOKENS]
        self.kept: Mapping[str, int] = {unit: kept_bytes(job, unit) for unit in units}
        self.whole: Mapping[str, int] = {unit: activation_bytes(job, unit) for unit in units}
        self.left: Mapping[str, int] = {unit: held_for_weight_bytes(job, unit) for unit in units}
        self.open_gradients: set[str] = set()

    def message(self, action: Action) -> int:
        return self._messages[boundary(action)]

    def opened(self, unit: str) -> Iterator[Booking]:
        for owner in (self.home[name] for name in needs(self.model, unit) if self.shards_gradients):
            if owner.name not in self.open_gradients:
                self.open_gradients.add(owner.name)
                yield "buffers", owner.padded * self.gradient

    def reduced(self, bucket: str) -> None:
        self.open_gradients.discard(bucket)
