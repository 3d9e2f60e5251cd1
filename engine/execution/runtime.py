"""Executes one rank's lane of a program, action by action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from engine.communication.comm import Comm, Handle, stamp_end
from engine.execution.flat_bucket import DTYPES, FlatBucket
from engine.execution.optimizer import Adam, clip_factor
from engine.execution.step_state import Kept, StepResult, StepState
from engine.job.axes import dividing, scalar_axes
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.job.registry import Registry
from engine.layers.layers import Layers
from engine.layers.run_backward import add_gradients
from engine.layers.split_backward import WeightWork, add_all, held_bytes
from engine.layers.tensor import TensorAxis
from engine.model.buckets import buckets_of_pp_rank
from engine.model.family import family_of, loaded
from engine.model.initialization import Source
from engine.model.unit_kinds import kind_of
from engine.model.units import TOKENS, boundary_bytes, boundary_shapes, needs, recomputes, stages, tied_pp_ranks
from engine.program.dependencies import waits
from engine.program.kinds import Kind
from engine.program.program import Action, Program, boundary
from engine.recording.ledger import Ledger, storage_identity, watching_saved
from engine.recording.recorder import Recorder


class Runtime:
    """One rank: its buckets, its layers, and what it does for each kind of action (`HANDLERS`)."""

    def __init__(
        self, job: Job, program: Program, rank: int, comm: Comm, device: torch.device, ledger: Ledger, source: Source
    ) -> None:
        """source: where the parameters' initial values come from."""
        self.job, self.rank, self.comm, self.device, self.ledger = job, rank, comm, device, ledger
        self.recorder: Recorder = comm.recorder
        self.mesh = mesh_of(job)
        self.at, self.replica = self.mesh.coordinate(rank), self.mesh.replica(rank)
        self.lane, self.waits = program.lanes[self.at.pp], waits(job, program, self.at.pp)
        self.split = {(a.unit, a.microbatch) for a in self.lane if a.kind is Kind.BACKWARD_INPUT}
        self.adam = Adam(job.training.lr)
        self.dtype = DTYPES[job.precision.compute]
        layers: type[Layers] = loaded(family_of(job.model).layers)
        self.model = layers(job, TensorAxis(comm, job.scatters_sequence), device, self.dtype)
        self.buckets = {
            b.name: FlatBucket(job, b, self.at, device, ledger, source) for b in buckets_of_pp_rank(job, self.at.pp)
        }
        self.home = {unit: b for b in self.buckets.values() for unit in b.bucket.units}
        self.stage_units = stages(job)
        self.params = {unit: self._params(unit) for s in self.stage_units for unit in s if unit in self.home}
        self._message_shapes, self._message_bytes = boundary_shapes(job), boundary_bytes(job)
        self.saved_bytes: dict[str, int] = {}
        """By kind of unit: what autograd keeps of its forward."""
        self.left_bytes: dict[str, int] = {}
        """By kind of unit: what the input part of a split backward leaves for the weight part."""
        self.do = {action.kind: HANDLERS[action.kind.name].do for action in self.lane}
        """What is done for each kind of action."""

    def _params(self, unit: str) -> dict[str, Tensor]:
        owners = needs(self.job.model, unit)
        return {name: p for o in owners for name, p in self.home[o].params.items() if name.startswith(o + ".")}

    def run_step(self, data: list[Tensor], number: int, entering: Callable[[Action], None]) -> StepResult:
        """Executes one step; `number` counts from 0. `entering` is told of each action before it starts."""
        state = self.execute(data, entering, number)
        assert state.result is not None
        return state.result

    def execute(
        self, data: list[Tensor], entering: Callable[[Action], None] = lambda _: None, number: int = 0
    ) -> StepState:
        """Executes the lane, whatever is in it, and returns what it left."""
        state = StepState(data, number)
        for i, action in enumerate(self.lane):
            entering(action)
            self._settle(i, state)
            handle = self.do[action.kind](self, action, state)
            if handle is not None:
                state.handles[i] = handle
        self._settle(len(self.lane), state)
        assert not state.handles
        return state

    def _settle(self, i: int, state: StepState) -> None:
        """Waits for what action `i` needs and lets go of the sends that are known to have arrived then."""
        for j in self.waits.before[i]:
            self.comm.wait(state.handles.pop(j))
            if self.lane[j].kind.moves == "message":
                self.ledger.add("buffers", -self._message_bytes[boundary(self.lane[j])])
        for j in self.waits.forgets[i]:
            self.comm.forget(state.handles.pop(j))
            self.ledger.add("buffers", -self._message_bytes[boundary(self.lane[j])])

    # -- compute

    def _forward(self, a: Action, state: StepState) -> None:
        stage, k = _place(a)
        x = self._input(a, state)
        x_in = x.detach().requires_grad_() if x is not None else None
        if recomputes(self.job, a.unit):
            assert x_in is not None
            with self.recorder.compute(a, self._shape_key(a)), torch.no_grad():
                y = self.model.forward(a.unit, self.params[a.unit], x_in, state.data[k])
            self._keep(a, Kept(x_in, None, x_in.nbytes, None), state)
        else:
            y = self._forward_saving(a, x_in, state)
        if kind_of(a.unit).loss:
            state.loss += 0.0 if y.is_meta else float(y.detach())
        else:
            state.activations[stage, k] = y.detach()

    def _forward_saving(self, a: Action, x: Tensor | None, state: StepState) -> Tensor:
        """The forward of a unit with all that its backward needs."""
        _, k = _place(a)
        params, data = self.params[a.unit], state.data[k]
        key = self._shape_key(a)
        work: WeightWork | None = [] if (a.unit, k) in self.split else None
        self.model.axis.work = work
        with self.recorder.compute(a, key):
            if key[-1] in self.saved_bytes:
                y = self.model.forward(a.unit, params, x, data)
            else:
                constants = {storage_identity(p) for p in (*params.values(), data)}
                with watching_saved(constants) as saved:
                    y = self.model.forward(a.unit, params, x, data)
                self.saved_bytes[key[-1]] = saved.nbytes
        self._keep(a, Kept(x, get_gradient_edge(y), self.saved_bytes[key[-1]], work), state)
        return y

    def _keep(self, a: Action, kept: Kept, state: StepState) -> None:
        _, k = _place(a)
        before = state.kept.get((a.unit, k))
        self.ledger.add("activations", kept.nbytes - (before.nbytes if before else 0))
        state.kept[a.unit, k] = kept

    def _recompute(self, a: Action, state: StepState) -> None:
        """The forward again, from the kept input, now with what backward needs."""
        _, k = _place(a)
        self._forward_saving(a, state.kept[a.unit, k].x, state)

    def _backward(self, a: Action, state: StepState) -> None:
        """A whole backward, or its input part."""
        stage, k = _place(a)
        grad = self._output_gradient(a, state)
        if a.kind is Kind.BACKWARD:
            self._open_gradients(a)
        kept = state.kept.pop((a.unit, k))
        assert kept.edge is not None
        with self.recorder.compute(a, self._shape_key(a)):
            add_gradients(kept.edge, grad)
        if kept.work is not None:
            state.work[a.unit, k] = kept.work
        left = 0 if kept.work is None else held_bytes(kept.work)
        if kept.work is not None:
            self.left_bytes[kind_of(a.unit).name] = left
        self.ledger.add("activations", left - kept.nbytes)
        if kept.x is not None:
            assert kept.x.grad is not None
            state.gradients[stage, k] = kept.x.grad

    def _backward_weight(self, a: Action, state: StepState) -> None:
        work = state.work.pop((a.unit, _place(a)[1]))
        self._open_gradients(a)
        with self.recorder.compute(a, self._shape_key(a)):
            add_all(work)
        self.ledger.add("activations", -held_bytes(work))

    def _open_gradients(self, a: Action) -> None:
        for owner in needs(self.job.model, a.unit):
            self.home[owner].open_gradients()

    def _shape_key(self, a: Action) -> tuple[str, str]:
        return a.kind.name, kind_of(a.unit).name

    def _input(self, a: Action, state: StepState) -> Tensor | None:
        """The unit's input: none, a message, or what the unit before it left."""
        stage, k = _place(a)
        if a.unit == self.stage_units[stage][0]:
            if stage == 0:
                return None
            if (Kind.RECV_ACT, stage, k) in state.arriving:
                return state.arriving.pop((Kind.RECV_ACT, stage, k))
            return state.activations.pop((stage - 1, k))
        return state.activations.pop((stage, k))

    def _output_gradient(self, a: Action, state: StepState) -> Tensor:
        stage, k = _place(a)
        if kind_of(a.unit).loss:
            return torch.ones((), device=self.device)
        if a.unit == self.stage_units[stage][-1]:
            if (Kind.RECV_GRAD, stage, k) in state.arriving:
                return state.arriving.pop((Kind.RECV_GRAD, stage, k))
            return state.gradients.pop((stage + 1, k))
        return state.gradients.pop((stage, k))

    # -- messages

    def _recv(self, a: Action, state: StepState) -> Handle:
        stage, k = _place(a)
        assert a.peer is not None
        buffer = torch.empty(self._message_shapes[boundary(a)], device=self.device, dtype=self.dtype)
        self.ledger.add("buffers", buffer.nbytes)
        sender = stage - 1 if a.kind is Kind.RECV_ACT else stage + 1
        state.arriving[a.kind, stage, k] = buffer
        return self.comm.recv(buffer, self._peer(a), self.tag(a.kind, sender, k), a.kind.stream, a)

    def _send(self, a: Action, state: StepState) -> Handle:
        stage, k = _place(a)
        flow = state.activations if a.kind is Kind.SEND_ACT else state.gradients
        tensor = flow.pop((stage, k)).contiguous()
        self.ledger.add("buffers", tensor.nbytes)
        return self.comm.send(tensor, self._peer(a), self.tag(a.kind, stage, k), a.kind.stream, a)

    def _peer(self, a: Action) -> int:
        assert a.peer is not None
        return self.mesh.rank(**{**self.at, "pp": a.peer})

    def tag(self, kind: Kind, sender: int, k: int) -> int:
        """A tag of its own for each message of a step, so that no order of posting can mix two up."""
        upward = kind in (Kind.SEND_ACT, Kind.RECV_ACT)
        return (sender * self.job.plan.microbatches + k) * 2 + upward

    # -- parameters and gradients

    def _gather(self, a: Action, state: StepState) -> Handle:
        bucket = self.buckets[a.unit]
        out = bucket.materialize() if bucket.zero == 3 else bucket.whole
        return stamp_end(self.comm.all_gather(out, bucket.shard, a.axis, a))

    def _release(self, a: Action, state: StepState) -> None:
        self.buckets[a.unit].release()

    def _reduce(self, a: Action, state: StepState) -> Handle:
        bucket = self.buckets[a.unit]
        if a.axis in bucket.bucket.partial_axes:
            handle = self.comm.all_reduce(bucket.replicated_grad, a.axis, action=a)
        elif a.op == "all_reduce":
            handle = self.comm.all_reduce(bucket.grad, a.axis, action=a)
        else:
            target = bucket.reduction_target()
            handle = self.comm.reduce_scatter(target, bucket.whole_grad, a.axis, a)
            if bucket.zero >= 2:
                handle.after.append(lambda: bucket.accumulate(target))
        return stamp_end(handle)

    # -- optimizer

    def _norm(self, a: Action, state: StepState) -> None:
        with self.recorder.compute(a, (a.kind.name, "")):
            self._sum_up(state)

    def _update(self, a: Action, state: StepState) -> None:
        bucket = self.buckets[a.unit]
        with self.recorder.compute(a, (a.kind.name, f"{bucket.bucket.padded}/{bucket.bucket.shards}")):
            self._step(bucket, state)

    def _optimize(self, a: Action, state: StepState) -> None:
        """The norm and every update at once."""
        with self.recorder.compute(a, (a.kind.name, "")):
            self._sum_up(state)
            for bucket in self.buckets.values():
                self._step(bucket, state)

    def _sum_up(self, state: StepState) -> None:
        loss, norm = self._global_scalars(state.loss)
        state.factor, state.result = clip_factor(norm, self.job.training.clip), StepResult(loss, norm)

    def _step(self, bucket: FlatBucket, state: StepState) -> None:
        with torch.no_grad():
            bucket.step(self.adam, state.factor, state.number + 1)

    def _global_scalars(self, loss: float) -> tuple[float, float]:
        """(loss, gradient norm) of the whole job: every rank adds only what no other rank adds."""
        copies = self.at.pp in tied_pp_ranks(self.job)[1:]
        counted = [b.squared_norm() for name, b in self.buckets.items() if not (copies and name == TOKENS)]
        first = self.at.is_first(dividing("tensors"))
        mine = torch.tensor(loss if first else 0.0, dtype=torch.float64, device=self.device)
        both = torch.stack([mine, torch.stack(counted).sum() if counted else torch.zeros_like(mine)])
        for axis in scalar_axes(self.mesh.degrees):
            if self.comm.size(axis) > 1:
                self.comm.now(self.comm.all_reduce(both, axis, stream="world"))
        if both.is_meta:  # a rehearsal: there are no values
            return 0.0, 0.0
        loss, squared = both.tolist()
        return loss, squared**0.5


def _place(a: Action) -> tuple[int, int]:
    assert a.stage is not None and a.microbatch is not None, a
    return a.stage, a.microbatch


def _nothing(runtime: Runtime, a: Action, state: StepState) -> None:
    """WAIT and END are no more than their waits."""


@dataclass(frozen=True)
class Handler:
    """How a rank does an action of the kind `name`; `do` returns what it has only started, if anything."""

    name: str
    do: Callable[[Runtime, Action, StepState], Handle | None]


HANDLERS: Registry[Handler] = Registry(
    "handler of an action kind",
    Handler("forward", Runtime._forward),
    Handler("backward", Runtime._backward),
    Handler("backward_input", Runtime._backward),
    Handler("backward_weight", Runtime._backward_weight),
    Handler("recompute", Runtime._recompute),
    Handler("send_act", Runtime._send),
    Handler("recv_act", Runtime._recv),
    Handler("send_grad", Runtime._send),
    Handler("recv_grad", Runtime._recv),
    Handler("gather", Runtime._gather),
    Handler("release", Runtime._release),
    Handler("reduce", Runtime._reduce),
    Handler("wait", _nothing),
    Handler("norm", Runtime._norm),
    Handler("update", Runtime._update),
    Handler("end", _nothing),
    Handler("step", Runtime._optimize),
)
