"""Recordings made without processes, from the compiled program at made-up costs, so that every answer is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.program.compile import compile_job
from engine.program.dryrun import dry_run, unit_cost
from engine.program.kinds import Kind
from engine.program.program import Action
from engine.recording.columns import table_of
from engine.recording.tables import (
    MemoryRow,
    MetricRow,
    Op,
    Recorded,
    Recording,
    op_from,
)

MESSAGE_BYTES = 1000
BUCKET_BYTES = 8000


def op(**values: Any) -> Op:
    """A row with everything that is not given left empty."""
    return op_from({"seq": 0, "stream": "compute", "kind": "wait", "name": ""} | values)


def recording_of(
    ops: Iterable[Op] = (), memory: Iterable[MemoryRow] = (), metrics: Iterable[MetricRow] = ()
) -> Recorded:
    return Recorded(table_of("ops", list(ops)), table_of("memory", list(memory)), table_of("metrics", list(metrics)))


def message(recv_seq: int, posted: int, sent: int, there: int) -> list[Op]:
    """Micro-batch 3 from stage 0 on rank 0 to stage 1 on rank 1."""
    common = {
        "stream": "pp_act",
        "op": "message",
        "group": "pp",
        "microbatch": 3,
        "logical_bytes": 50,
        "wire_bytes": 60,
    }
    return [
        op(rank=0, seq=9, kind="send_act", stage=0, peers=(0, 1), start_ns=sent, end_ns=500, **common),
        op(
            rank=1,
            seq=recv_seq,
            kind="recv_act",
            stage=1,
            peers=(1, 0),
            start_ns=posted,
            end_ns=there,
            **common,
        ),
    ]


@dataclass(frozen=True)
class Costs:
    """ns. unit: of one unit of `cost`. layer: of a collective inside a block's forward or backward, two
    each; it is part of the action's own time. collective, world: of an asynchronous one, and of the one
    inside the norm. step: of all updates together.
    """

    cost: Callable[[Action], int] = unit_cost
    unit: int = 1_000_000
    layer: int = 0
    collective: int = 0
    world: int = 0
    step: int = 0


def lifelike(action: Action) -> int:
    """Costs as a real run has them: embedding and head take time too. In units of 0.1 ms."""
    head_or_block = {"head": 4, "embedding": 1}.get(action.unit, 10 + len(action.unit) % 3)
    return {Kind.FORWARD: head_or_block, Kind.BACKWARD: 2 * head_or_block}.get(action.kind, 0)


LIFELIKE = Costs(lifelike, unit=100_000, layer=120_000, collective=1_500_000, world=400_000, step=900_000)


@dataclass
class _Rank:
    """The rows of one rank in one step."""

    step: int
    rank: int
    rows: list[Op] = field(default_factory=list)

    def add(self, **values: Any) -> int:
        self.rows.append(op(step=self.step, rank=self.rank, seq=len(self.rows), **values))
        return len(self.rows) - 1

    def end(self, seq: int, time: int) -> None:
        self.rows[seq] = replace(self.rows[seq], end_ns=time)


class Synthesis:
    """Plays one step of a job's program at `costs`, on every rank of the mesh."""

    def __init__(self, job: Job, costs: Costs) -> None:
        self.job, self.costs, self.mesh = job, costs, mesh_of(job)
        self.tensor_groups = {rank: group for group in self.mesh.groups("tp") for rank in group}
        self.spans = dry_run(compile_job(job), costs.cost).spans
        self.sent = {
            (s.action.kind, s.action.stage, s.action.microbatch): s.end for s in self.spans if s.action.kind.sends
        }

    def step(self, number: int, origin: int) -> tuple[list[Op], int]:
        """(rows, when the step ended)."""
        ranks = [self._until_step(number, rank, origin) for rank in range(self.mesh.size)]
        meet = max(ready for _, ready, _ in ranks) + self.costs.world
        rows: list[Op] = []
        for made, ready, flying in ranks:
            self._finish(made, ready, meet, flying)
            rows += made.rows
        return rows, max(row.end_ns for row in rows)

    def _until_step(self, number: int, rank: int, origin: int) -> tuple[_Rank, int, list[int]]:
        """A rank's rows up to the norm; when it gets there; the sends nobody has waited for."""
        made, clock, posted, flying = _Rank(number, rank), origin, {}, []
        pp_rank = self.mesh.coordinate(rank).pp
        for span in (s for s in self.spans if s.pp_rank == pp_rank):
            a, start, end = (
                span.action,
                origin + span.start * self.costs.unit,
                origin + span.end * self.costs.unit,
            )
            if a.kind is Kind.NORM:
                break
            if a.kind in (Kind.WAIT, Kind.RELEASE):
                continue
            if start > clock and a.kind.computes:
                receive = RECEIVE_FOR[a.kind]
                made.add(
                    kind="wait",
                    name="wait",
                    start_ns=clock,
                    end_ns=start,
                    ref=posted[receive, a.stage, a.microbatch],
                )
            if a.kind.computes:
                self._compute(made, a, start, end)
            else:
                seq = self._communicate(made, a, start, origin)
                posted[a.kind, a.stage, a.microbatch] = seq
                flying += [seq] if a.kind.sends else []
            clock = max(clock, end)
        for row in [r for r in made.rows if r.kind == "reduce" and r.end_ns > clock]:
            made.add(kind="wait", name=f"wait {row.name}", start_ns=clock, end_ns=row.end_ns, ref=row.seq)
            clock = row.end_ns
        return made, clock, flying

    def _compute(self, made: _Rank, a: Action, start: int, end: int) -> None:
        parent = made.add(**_labels(a), start_ns=start, end_ns=end)
        if self.mesh.degree("tp") > 1 and a.unit.startswith("block") and self.costs.layer:
            tp = self.tensor_groups[made.rank]
            for part in (1, 2):
                at = start + (end - start) * part // 2
                made.add(
                    kind="collective",
                    stream="tp",
                    group="tp",
                    op="all_reduce",
                    name="all_reduce",
                    parent=parent,
                    peers=tuple(tp),
                    start_ns=at - self.costs.layer,
                    end_ns=at,
                    logical_bytes=512,
                    wire_bytes=512,
                )

    def _communicate(self, made: _Rank, a: Action, start: int, origin: int) -> int:
        if a.kind.sends or a.kind.receives:
            assert a.peer is not None and a.stage is not None
            at = self.mesh.coordinate(made.rank)
            ends = start
            if a.kind.receives:
                sender = a.stage + (-1 if a.kind is Kind.RECV_ACT else 1)
                ends = max(start, origin + self.sent[a.kind.other_end, sender, a.microbatch] * self.costs.unit)
            return made.add(
                **_labels(a),
                stream=_message_stream(a),
                group="pp",
                op="message",
                start_ns=start,
                end_ns=ends,
                peers=(made.rank, self.mesh.rank(**{**at, "pp": a.peer})),
                logical_bytes=MESSAGE_BYTES,
                wire_bytes=MESSAGE_BYTES,
            )
        peers = self.mesh.group("pp" if a.axis == "tie" else a.axis, made.rank)
        peers = peers if a.axis != "tie" else [peers[0], peers[-1]]
        nbytes = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}.get(a.op, 0) * BUCKET_BYTES
        return made.add(
            **_labels(a), stream=a.axis, group=a.axis, op=a.op, peers=tuple(peers), start_ns=start,
            end_ns=start + self.costs.collective, logical_bytes=nbytes, wire_bytes=nbytes,
        )  # fmt: skip

    def _finish(self, made: _Rank, ready: int, meet: int, sends: list[int]) -> None:
        """The norm, the updates and what comes between them, and the waits for all that is under way."""
        lane = compile_job(self.job).lanes[self.mesh.coordinate(made.rank).pp]
        at = next(i for i, a in enumerate(lane) if a.kind is Kind.NORM)
        norm = made.add(**_labels(lane[at]), start_ns=ready, end_ns=meet)
        if self.mesh.size > 1:
            made.add(
                kind="collective",
                stream="world",
                group="world",
                op="all_reduce",
                name="all_reduce",
                parent=norm,
                peers=tuple(range(self.mesh.size)),
                start_ns=ready,
                end_ns=meet,
                logical_bytes=16,
                wire_bytes=16,
            )
        clock, last = meet, []
        left = sum(a.kind is Kind.UPDATE for a in lane)
        for a in lane[at + 1 :]:
            if a.kind is Kind.UPDATE:
                end = clock + (meet + self.costs.step - clock) // left
                made.add(**_labels(a), start_ns=clock, end_ns=end)
                clock, left = end, left - 1
            elif a.kind is not Kind.END:
                last.append(self._communicate(made, a, clock, 0))
        for seq in (*last, *sends):
            row = made.rows[seq]
            made.end(seq, max(row.end_ns, clock))
            if made.rows[seq].end_ns > clock:
                made.add(kind="wait", name=f"wait {row.name}", start_ns=clock, end_ns=row.end_ns, ref=seq)
            clock = made.rows[seq].end_ns


RECEIVE_FOR = {Kind.FORWARD: Kind.RECV_ACT, Kind.BACKWARD: Kind.RECV_GRAD, Kind.BACKWARD_INPUT: Kind.RECV_GRAD}


def _labels(a: Action) -> dict[str, Any]:
    stage, micro = (-1 if n is None else n for n in (a.stage, a.microbatch))
    return {"kind": a.kind.name, "name": str(a), "unit": a.unit, "microbatch": micro, "stage": stage}


def _message_stream(a: Action) -> str:
    return "pp_act" if a.kind in (Kind.SEND_ACT, Kind.RECV_ACT) else "pp_grad"


def synthetic(job: Job, costs: Costs | None = None, steps: int = 3) -> Recording:
    """A recording of `steps` equal steps of a job, the first one 3 ms longer in its beginning, as warm-ups
    are.
    """
    costs = costs or Costs()
    play, ops, origin = Synthesis(job, costs), [], 5_000_000_000
    for number in range(steps):
        rows, end = play.step(number, origin)
        ops += rows
        origin = end + 1_000_000
    metrics = [MetricRow(k, 5.5 - 0.3 * k, 1.0, 0.05, 20480.0, 5.5 - 0.3 * k) for k in range(steps)]
    return recording_of(ops, memory_rows(job, ops), metrics)


def memory_rows(job: Job, ops: list[Op]) -> Iterator[MemoryRow]:
    """State at the beginning; 4 kB of activations from each forward of a unit to its backward; buffers
    while reducing.
    """
    by_rank: dict[int, list[Op]] = {rank: [] for rank in range(job.world_size)}
    for row in ops:
        by_rank[row.rank].append(row)
    for rank, mine in by_rank.items():
        held = {"activations": 0, "buffers": 0}
        for category, nbytes in (("params", 40_000), ("grads", 40_000), ("optimizer", 80_000 // job.plan.dp)):
            yield MemoryRow(-1, rank, 4_000_000_000, category, nbytes)
        changes = []
        for row in mine:
            if row.kind in ("forward", "backward", "backward_weight"):
                sign = 1 if row.kind == "forward" else -1
                changes.append((row.end_ns, row.step, "activations", sign * 4_000))
            if row.kind == "reduce":
                changes += [
                    (row.start_ns, row.step, "buffers", 6_000),
                    (row.end_ns, row.step, "buffers", -6_000),
                ]
        for time, step, category, change in sorted(changes, key=lambda c: c[0]):
            held[category] += change
            yield MemoryRow(step, rank, time, category, held[category])
