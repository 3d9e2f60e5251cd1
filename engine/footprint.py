"""Predicts the memory ledger by walking a program with closed-form sizes: each category's peak on each rank."""

from __future__ import annotations

from collections.abc import Iterator

from engine.buckets import FP32, Bucket, lane_buckets
from engine.compile import compile_job
from engine.deliveries import Proofs, proofs
from engine.formulas import activation_bytes, held_for_weight_bytes, message_bytes, state_bytes
from engine.job import Job
from engine.mesh import mesh_of
from engine.program import ADDS_GRADIENT, MAKES_GRADIENT, RECEIVES, SENDS, Action, Kind, Program
from engine.recording import CATEGORIES
from engine.units import needs, stages

Change = tuple[str, int]  # category, bytes


def predicted_memory(job: Job, program: Program | None = None) -> list[dict[str, int]]:
    """Bytes on each rank: params, grads, optimizer, {activations,gathered,buffers,total}_peak."""
    mesh = mesh_of(job)
    lanes = [_lane_peaks(job, program or compile_job(job), z) for z in range(job.plan.pp)]
    return [{"rank": rank} | lanes[mesh.coordinate(rank).pp] for rank in range(mesh.size)]


def total_bytes(job: Job) -> int:
    """All ranks' peaks together, what a machine that runs every rank must hold."""
    copies = job.plan.dp * job.plan.tp
    return copies * sum(_lane_peaks(job, compile_job(job), z)["total_peak"] for z in range(job.plan.pp))


def _lane_peaks(job: Job, program: Program, z: int) -> dict[str, int]:
    held = dict.fromkeys(CATEGORIES, 0) | state_bytes(job, z)
    peaks, total = dict(held), sum(held.values())
    for category, nbytes in lane_changes(job, program, z):
        held[category] += nbytes
        peaks[category] = max(peaks[category], held[category])
        total = max(total, sum(held.values()))
    state = {name: held[name] for name in ("params", "grads", "optimizer")}
    transient = {f"{name}_peak": peaks[name] for name in ("activations", "gathered", "buffers")}
    return state | transient | {"total_peak": total}


def lane_changes(job: Job, program: Program, z: int) -> Iterator[Change]:
    """What each action of a lane books, in order: the ledger's own rules (see `engine.memory`)."""
    buckets = {unit: b for b in lane_buckets(job, z) for unit in b.units}
    named = {b.name: b for b in buckets.values()}
    zero, first = job.effective_zero, {s: units[0] for s, units in enumerate(stages(job))}
    last = {s: units[-1] for s, units in enumerate(stages(job))}
    arrived: set[tuple[Kind, int | None, int | None]] = set()
    open_grads: set[str] = set()
    reducing: set[str] = set()

    def settle(name: str) -> Iterator[Change]:
        if name in reducing:
            reducing.discard(name)
            open_grads.discard(name)
            yield "buffers", -(named[name].padded + named[name].shard) * FP32

    arrivals = proofs(program, z)
    for a in program.lanes[z]:
        yield from _takes_message(a, first, last, arrived, arrivals, message_bytes(job))
        if a.kind in RECEIVES:
            arrived.add((a.kind, a.stage, a.microbatch))
            yield "buffers", message_bytes(job)
        elif a.kind in SENDS:
            yield "buffers", message_bytes(job)
        elif a.kind is Kind.FORWARD:
            yield "activations", activation_bytes(job, a.unit)
        elif a.kind is Kind.BACKWARD_INPUT:
            yield "activations", held_for_weight_bytes(job, a.unit) - activation_bytes(job, a.unit)
        elif a.kind in ADDS_GRADIENT:
            if zero >= 2:
                for owner in (buckets[u].name for u in needs(job.model, a.unit)):
                    yield from settle(owner)
                    if owner not in open_grads:
                        open_grads.add(owner)
                        yield "buffers", named[owner].padded * FP32
            whole = a.kind is Kind.BACKWARD
            yield "activations", -(activation_bytes if whole else held_for_weight_bytes)(job, a.unit)
        elif zero >= 2 and a.kind is Kind.REDUCE and a.axis == "dp":
            reducing.add(a.unit)
            yield "buffers", named[a.unit].shard * FP32
        elif zero >= 2 and a.kind is Kind.WAIT and a.axis == "dp":
            yield from settle(a.unit)
        elif a.kind is Kind.STEP:
            for name in sorted(reducing):
                yield from settle(name)
        elif zero == 3 and a.kind in (Kind.GATHER, Kind.RELEASE):
            yield "gathered", _signed(a, named) * FP32


def _takes_message(
    a: Action,
    first: dict[int, str],
    last: dict[int, str],
    arrived: set[tuple[Kind, int | None, int | None]],
    arrivals: Proofs,
    nbytes: int,
) -> Iterator[Change]:
    """A stage's first forward and last-unit backward use up the message received for them, which proves others sent."""
    takes = dict.fromkeys(MAKES_GRADIENT, (Kind.RECV_GRAD, last)) | {Kind.FORWARD: (Kind.RECV_ACT, first)}
    end = takes.get(a.kind)
    if end and a.stage is not None and a.unit == end[1][a.stage] and (end[0], a.stage, a.microbatch) in arrived:
        arrived.discard((end[0], a.stage, a.microbatch))
        yield "buffers", -nbytes
        if a.microbatch is not None:
            yield "buffers", -nbytes * len(arrivals.get((end[0], a.stage, a.microbatch), ()))


def _signed(a: Action, named: dict[str, Bucket]) -> int:
    return named[a.unit].padded if a.kind is Kind.GATHER else -named[a.unit].padded
