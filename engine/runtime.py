"""Executes one rank's lane of a program, action by action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from engine.buckets import lane_buckets
from engine.comm import Comm, Handle, stamp_end
from engine.deliveries import Key, proofs
from engine.flat import FlatBucket
from engine.formulas import message_bytes
from engine.initial import Source
from engine.job import Job
from engine.memory import Ledger, watching_saved
from engine.mesh import mesh_of
from engine.models.gpt import GPT
from engine.optimizer import Adam, clip_factor
from engine.parallel.split import WeightWork, add_all, held_bytes
from engine.parallel.tensor import TensorAxis
from engine.program import Action, Kind, Program
from engine.recorder import Recorder
from engine.units import TOKENS, needs, stages, token_lanes


@dataclass
class Kept:
    """What a unit's forward leaves for its backward: its input, the edge into its graph, the bytes that hold, and where
    the input part of a split backward puts the work of the weight part."""

    x: Tensor | None
    edge: GradientEdge
    nbytes: int
    work: WeightWork | None


@dataclass(frozen=True)
class StepResult:
    """Loss and gradient norm of the whole job's step; equal on every rank."""

    loss: float
    grad_norm: float


@dataclass
class _Step:
    """What lives for one step. Keys of flows are (stage, micro-batch)."""

    tokens: list[Tensor]
    activations: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    gradients: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    kept: dict[tuple[str, int], Kept] = field(default_factory=dict)
    work: dict[tuple[str, int], WeightWork] = field(default_factory=dict)
    arriving: dict[tuple[Kind, int, int], tuple[Handle, Tensor]] = field(default_factory=dict)
    sends: dict[Key, Handle] = field(default_factory=dict)
    flying: dict[tuple[Kind, str, str], Handle] = field(default_factory=dict)
    loss: float = 0.0
    result: StepResult | None = None


class Runtime:
    """One rank: its buckets, its layers, and a method for each kind of action."""

    def __init__(
        self, job: Job, program: Program, rank: int, comm: Comm, device: torch.device, ledger: Ledger, source: Source
    ) -> None:
        """source: where the parameters' initial values come from."""
        self.job, self.rank, self.comm, self.device, self.ledger = job, rank, comm, device, ledger
        self.recorder: Recorder = comm.recorder
        self.mesh = mesh_of(job)
        self.at = self.mesh.coordinate(rank)
        self.lane, self.proofs = program.lanes[self.at.pp], proofs(program, self.at.pp)
        self.split = {(a.unit, a.microbatch) for a in self.lane if a.kind is Kind.BACKWARD_INPUT}
        self.adam = Adam(job.training.lr)
        tokens = job.training.batch * job.model.seq
        self.model = GPT(job.model, TensorAxis(comm, job.scatters_sequence), 1.0 / tokens, device)
        self.buckets = {
            b.name: FlatBucket(job, b, self.at, device, ledger, source) for b in lane_buckets(job, self.at.pp)
        }
        self.home = {unit: b for b in self.buckets.values() for unit in b.bucket.units}
        self.stage_units = stages(job)
        self.params = {unit: self._params(unit) for s in self.stage_units for unit in s if unit in self.home}
        s = job.model.seq // (job.plan.tp if job.scatters_sequence else 1)
        self._message_shape = (s, job.microbatch_size, job.model.hidden)
        self._message_bytes = message_bytes(job)
        self.saved_bytes: dict[str, int] = {}
        self._do: dict[Kind, Callable[[Action, _Step], None]] = {
            Kind.FORWARD: self._forward, Kind.BACKWARD: self._backward, Kind.BACKWARD_INPUT: self._backward,
            Kind.BACKWARD_WEIGHT: self._backward_weight, Kind.GATHER: self._gather,
            Kind.RELEASE: self._release, Kind.REDUCE: self._reduce, Kind.WAIT: self._wait, Kind.STEP: self._optimize,
            Kind.SEND_ACT: self._send, Kind.SEND_GRAD: self._send, Kind.RECV_ACT: self._recv,
            Kind.RECV_GRAD: self._recv,
        }  # fmt: skip

    def _params(self, unit: str) -> dict[str, Tensor]:
        owners = needs(self.job.model, unit)
        return {name: p for o in owners for name, p in self.home[o].params.items() if name.startswith(o + ".")}

    def run_step(self, tokens: list[Tensor], number: int, entering: Callable[[Action], None]) -> StepResult:
        """Executes one step; `number` counts from 0. `entering` is told of each action before it starts."""
        state = _Step(tokens)
        self.number = number
        for action in self.lane:
            entering(action)
            self._do[action.kind](action, state)
        for handle in (*state.flying.values(), *state.sends.values()):
            self.comm.wait(handle)
        self.ledger.add("buffers", -len(state.sends) * self._message_bytes)
        assert state.result is not None
        return state.result

    # -- compute

    def _forward(self, a: Action, state: _Step) -> None:
        stage, k = _place(a)
        x = self._input(a, state)
        for owner in needs(self.job.model, a.unit):
            self._settle(state, Kind.GATHER, owner, "dp")
        params, tokens = self.params[a.unit], state.tokens[k]
        x_in = x.detach().requires_grad_() if x is not None else None
        key = self._shape_key(a)
        work: WeightWork | None = [] if (a.unit, k) in self.split else None
        self.model.axis.work = work
        with self.recorder.compute(a, key):
            if key[-1] in self.saved_bytes:
                y = self.model.forward(a.unit, params, x_in, tokens)
            else:
                constants = {p.untyped_storage().data_ptr() for p in (*params.values(), tokens)}
                with watching_saved(constants) as saved:
                    y = self.model.forward(a.unit, params, x_in, tokens)
                self.saved_bytes[key[-1]] = saved.nbytes
        nbytes = self.saved_bytes[key[-1]]
        self.ledger.add("activations", nbytes)
        state.kept[a.unit, k] = Kept(x_in, get_gradient_edge(y), nbytes, work)
        if a.unit == "head":
            state.loss += float(y.detach())
        else:
            state.activations[stage, k] = y.detach()

    def _backward(self, a: Action, state: _Step) -> None:
        """A whole backward, or its input part."""
        stage, k = _place(a)
        grad = self._output_gradient(a, state)
        for owner in needs(self.job.model, a.unit):
            self._settle(state, Kind.GATHER, owner, "dp")
        if a.kind is Kind.BACKWARD:
            self._open_gradients(a, state)
        kept = state.kept.pop((a.unit, k))
        with self.recorder.compute(a, self._shape_key(a)):
            torch.autograd.backward([kept.edge], [grad])
        if kept.work is not None:
            state.work[a.unit, k] = kept.work
        self.ledger.add("activations", held_bytes(kept.work or []) - kept.nbytes)
        if kept.x is not None:
            assert kept.x.grad is not None
            state.gradients[stage, k] = kept.x.grad

    def _backward_weight(self, a: Action, state: _Step) -> None:
        work = state.work.pop((a.unit, _place(a)[1]))
        self._open_gradients(a, state)
        with self.recorder.compute(a, self._shape_key(a)):
            add_all(work)
        self.ledger.add("activations", -held_bytes(work))

    def _open_gradients(self, a: Action, state: _Step) -> None:
        for owner in needs(self.job.model, a.unit):
            if self.home[owner].zero >= 2:  # its gradient buffer may still be on its way
                self._settle(state, Kind.REDUCE, owner, "dp")
            self.home[owner].open_gradients()

    def _shape_key(self, a: Action) -> tuple[str, str]:
        return a.kind.value, "block" if a.unit.startswith("block") else a.unit

    def _input(self, a: Action, state: _Step) -> Tensor | None:
        """The unit's input: none, a message, or what the unit before it left."""
        stage, k = _place(a)
        if a.unit == self.stage_units[stage][0]:
            if stage == 0:
                return None
            if (Kind.RECV_ACT, stage, k) in state.arriving:
                return self._arrived(Kind.RECV_ACT, stage, k, state)
            return state.activations.pop((stage - 1, k))
        return state.activations.pop((stage, k))

    def _output_gradient(self, a: Action, state: _Step) -> Tensor:
        stage, k = _place(a)
        if a.unit == "head":
            return torch.ones((), device=self.device)
        if a.unit == self.stage_units[stage][-1]:
            if (Kind.RECV_GRAD, stage, k) in state.arriving:
                return self._arrived(Kind.RECV_GRAD, stage, k, state)
            return state.gradients.pop((stage + 1, k))
        return state.gradients.pop((stage, k))

    # -- messages

    def _recv(self, a: Action, state: _Step) -> None:
        stage, k = _place(a)
        assert a.peer is not None
        buffer = torch.empty(self._message_shape, device=self.device)
        self.ledger.add("buffers", buffer.nbytes)
        sender = stage - 1 if a.kind is Kind.RECV_ACT else stage + 1
        handle = self.comm.recv(buffer, self._peer(a), self._tag(a.kind, sender, k), _stream(a.kind), a)
        state.arriving[a.kind, stage, k] = (handle, buffer)

    def _arrived(self, kind: Kind, stage: int, k: int, state: _Step) -> Tensor:
        handle, buffer = state.arriving.pop((kind, stage, k))
        self.comm.wait(handle)
        self.ledger.add("buffers", -buffer.nbytes)
        for sent in self.proofs.get((kind, stage, k), ()):
            self.comm.forget(state.sends.pop(sent))
            self.ledger.add("buffers", -buffer.nbytes)
        return buffer

    def _send(self, a: Action, state: _Step) -> None:
        stage, k = _place(a)
        flow = state.activations if a.kind is Kind.SEND_ACT else state.gradients
        tensor = flow.pop((stage, k)).contiguous()
        self.ledger.add("buffers", tensor.nbytes)
        tag = self._tag(a.kind, stage, k)
        state.sends[a.kind, stage, k] = self.comm.send(tensor, self._peer(a), tag, _stream(a.kind), a)

    def _peer(self, a: Action) -> int:
        assert a.peer is not None
        return self.mesh.rank(self.at.dp, self.at.tp, a.peer)

    def _tag(self, kind: Kind, sender: int, k: int) -> int:
        """A tag of its own for each message of a step, so that no order of posting can mix two up."""
        upward = kind in (Kind.SEND_ACT, Kind.RECV_ACT)
        return (sender * self.job.plan.microbatches + k) * 2 + upward

    # -- parameters and gradients

    def _gather(self, a: Action, state: _Step) -> None:
        bucket = self.buckets[a.unit]
        out = bucket.materialize() if bucket.zero == 3 else bucket.whole
        state.flying[a.kind, a.unit, a.axis] = stamp_end(self.comm.all_gather(out, bucket.shard, a.axis, a))

    def _release(self, a: Action, state: _Step) -> None:
        self.buckets[a.unit].release()

    def _reduce(self, a: Action, state: _Step) -> None:
        bucket = self.buckets[a.unit]
        if a.axis == "tp":
            handle = self.comm.all_reduce(bucket.replicated_grad, "tp", action=a)
        elif a.op == "all_reduce":
            handle = self.comm.all_reduce(bucket.grad if a.axis == "tie" else bucket.whole_grad, a.axis, action=a)
        else:
            target = bucket.reduction_target()
            handle = self.comm.reduce_scatter(target, bucket.whole_grad, a.axis, a)
            if bucket.zero >= 2:
                handle.after.append(lambda: bucket.accumulate(target))
        state.flying[a.kind, a.unit, a.axis] = stamp_end(handle)

    def _wait(self, a: Action, state: _Step) -> None:
        self._settle(state, Kind.REDUCE, a.unit, a.axis)

    def _settle(self, state: _Step, kind: Kind, unit: str, axis: str) -> None:
        """Waits for the gather or reduction of a bucket, if one is under way."""
        handle = state.flying.pop((kind, unit, axis), None)
        if handle is not None:
            self.comm.wait(handle)

    # -- optimizer

    def _optimize(self, a: Action, state: _Step) -> None:
        for key in list(state.flying):
            self._settle(state, *key)
        with self.recorder.compute(a, (a.kind.value, "")):
            loss, norm = self._global_scalars(state.loss)
            factor = clip_factor(norm, self.job.training.clip)
            with torch.no_grad():
                for bucket in self.buckets.values():
                    bucket.step(self.adam, factor, self.number + 1)
        state.result = StepResult(loss, norm)

    def _global_scalars(self, loss: float) -> tuple[float, float]:
        """(loss, gradient norm) of the whole job: every rank adds only what no other rank adds."""
        copies = self.at.pp in token_lanes(self.job)[1:]
        counted = [b for name, b in self.buckets.items() if not (copies and name == TOKENS)]
        mine = [loss if self.at.tp == 0 else 0.0, sum(b.norm_parts() for b in counted)]
        both = torch.tensor(mine, dtype=torch.float64, device=self.device)
        for axis in ("tp", "pp", "dp"):
            if self.comm.size(axis) > 1:
                self.comm.now(self.comm.all_reduce(both, axis, stream="world"))
        return float(both[0]), float(both[1]) ** 0.5


def _place(a: Action) -> tuple[int, int]:
    assert a.stage is not None and a.microbatch is not None, a
    return a.stage, a.microbatch


def _stream(kind: Kind) -> str:
    return "pp_act" if kind in (Kind.SEND_ACT, Kind.RECV_ACT) else "pp_grad"
