"""What a job's ranks would write down, from the compiled program alone: the rows of `engine.runtime`, without times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.compile import compile_job
from engine.deliveries import key, proofs
from engine.job import Job
from engine.mesh import Mesh, mesh_of
from engine.program import RECEIVES, SENDS, Action, Kind, Program
from engine.recording import MEMORY_SCHEMA, METRICS_SCHEMA, OPS_SCHEMA, Op, Recording, table
from engine.rows import StepRows
from engine.timing import Seconds
from engine.units import needs

BLANK = Op(0, 0, 0, -1, "compute", "wait", "", "", -1, -1, "", "", (), 0, 0, 0, 0, 0, 0, 0, 0, -1)
FLOPS = 1000  # of a forward of a block; its backward has twice as many


def op(**values: Any) -> Op:
    return BLANK._replace(**values)


def recording_of(ops: Iterable[Op], stands_for: Mapping[int, int] | None = None) -> Recording:
    return Recording(
        table(list(ops), OPS_SCHEMA), table([], MEMORY_SCHEMA), table([], METRICS_SCHEMA), stands_for or {}
    )


def written(job: Job, program: Program | None = None, ranks: Iterable[int] | None = None) -> Recording:
    """The recording of one step of every rank, or of `ranks`; each block has two collectives in either direction."""
    program = program or compile_job(job)
    mesh = mesh_of(job)
    rows = [row for r in ranks or range(mesh.size) for row in _Rank(job, mesh, program, r).written()]
    return recording_of(rows)


@dataclass
class _Rank:
    job: Job
    mesh: Mesh
    program: Program
    rank: int
    rows: list[Op] = field(default_factory=list)
    flying: dict[tuple[str, ...], int] = field(default_factory=dict)
    arriving: dict[Any, int] = field(default_factory=dict)
    sends: dict[Any, int] = field(default_factory=dict)

    def add(self, a: Action | None = None, **values: Any) -> int:
        if a is not None:
            stage, micro = (-1 if n is None else n for n in (a.stage, a.microbatch))
            values = {
                "kind": a.kind.value,
                "name": str(a),
                "unit": a.unit,
                "stage": stage,
                "microbatch": micro,
            } | values
        self.rows.append(op(rank=self.rank, seq=len(self.rows), **values))
        return len(self.rows) - 1

    def group(self, axis: str) -> tuple[int, ...]:
        members = self.mesh.group("pp" if axis == "tie" else axis, self.rank)
        return (members[0], members[-1]) if axis == "tie" else tuple(members)

    def wait(self, seq: int | None) -> None:
        if seq is not None:
            self.add(kind="wait", name=f"wait {self.rows[seq].name}", ref=seq)

    def written(self) -> list[Op]:
        at = self.mesh.coordinate(self.rank)
        proved = proofs(self.program, at.pp)
        for a in self.program.lanes[at.pp]:
            if a.kind in (Kind.FORWARD, Kind.BACKWARD):
                self._compute(a, proved)
            elif a.kind is Kind.STEP:
                self._step(a)
            elif a.kind in SENDS or a.kind in RECEIVES:
                peer = self.mesh.rank(at.dp, at.tp, a.peer or 0)
                stream = "pp_act" if a.kind in (Kind.SEND_ACT, Kind.RECV_ACT) else "pp_grad"
                seq = self.add(a, stream=stream, op="message", group="pp", peers=(self.rank, peer), logical_bytes=4096)
                (self.sends if a.kind in SENDS else self.arriving)[key(a)] = seq
            elif a.kind in (Kind.GATHER, Kind.REDUCE):
                seq = self.add(a, stream=a.axis, op=a.op, group=a.axis, peers=self.group(a.axis), logical_bytes=8192)
                self.flying[a.kind.value, a.unit, a.axis] = seq
            elif a.kind is Kind.WAIT:
                self.wait(self.flying.pop(("reduce", a.unit, a.axis), None))
        for seq in (*self.flying.values(), *self.sends.values()):
            self.wait(seq)
        return self.rows

    def _compute(self, a: Action, proved: Mapping[Any, Any]) -> None:
        receive = Kind.RECV_ACT if a.kind is Kind.FORWARD else Kind.RECV_GRAD
        self.wait(self.arriving.pop((receive, a.stage, a.microbatch), None))
        for sent in proved.get((receive, a.stage, a.microbatch), ()):
            self.sends.pop(sent, None)
        for owner in needs(self.job.model, a.unit):
            self.wait(self.flying.pop(("gather", owner, "dp"), None))
            if a.kind is Kind.BACKWARD and self.job.effective_zero >= 2:
                self.wait(self.flying.pop(("reduce", owner, "dp"), None))
        flops = (FLOPS if a.kind is Kind.FORWARD else 2 * FLOPS) * a.unit.startswith("block")
        parent = self.add(a, flops=flops, operators=10, touched_bytes=100 * flops)
        for part in (1, 2) if self.job.plan.tp > 1 and flops else ():
            self.child("tp", "tp", parent, flops * part // 2)

    def child(self, stream: str, axis: str, parent: int, before: int) -> None:
        inside = self.rows[parent]
        self.add(kind="collective", name="all_reduce", op="all_reduce", stream=stream, group=stream, parent=parent,
                 peers=self.group(axis), before_flops=before, logical_bytes=2048, unit=inside.unit,
                 microbatch=inside.microbatch, stage=inside.stage)  # fmt: skip

    def _step(self, a: Action) -> None:
        for name in list(self.flying):
            self.wait(self.flying.pop(name))
        parent = self.add(a, operators=20, touched_bytes=FLOPS)
        for axis in ("tp", "pp", "dp"):
            if self.mesh.degree(axis) > 1:
                self.child("world", axis, parent, 0)


def uniform(
    forward: float = 1, backward: float = 2, step: float = 0, **together: float
) -> Callable[[StepRows], Seconds]:
    """Costs in seconds: of a block's forward and backward, and of every communication on a stream, by its name."""

    def costs(rows: StepRows) -> Seconds:
        own = np.zeros(len(rows))
        blocks = np.array([str(unit).startswith("block") for unit in rows.table["unit"].to_pylist()])
        for kind, seconds in (("forward", forward), ("backward", backward), ("step", step)):
            own[rows.among("kind", kind) & (blocks | (kind == "step"))] = seconds
        talk = np.zeros(len(rows))
        for stream, seconds in together.items():
            talk[rows.among("stream", stream)] = seconds
        return Seconds(own, talk)

    return costs
