"""What lives on a rank for one training step, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor
from torch.autograd.graph import GradientEdge

from engine.communication.comm import Handle
from engine.layers.split_backward import WeightWork
from engine.program.kinds import Kind


@dataclass
class Kept:
    """What a unit's forward leaves for its backward: its input, the edge into its graph, the bytes that hold, and where
    the input part of a split backward puts the work of the weight part."""

    x: Tensor | None
    edge: GradientEdge | None  # None while the forward has yet to be computed again
    nbytes: int
    work: WeightWork | None


@dataclass(frozen=True)
class StepResult:
    """Loss and gradient norm of the whole job's step; equal on every rank."""

    loss: float
    grad_norm: float


@dataclass
class StepState:
    """What lives for step `number`, counted from 0. data: of each micro-batch.

    Keys of flows are (stage, micro-batch), of handles the position that started them. factor: what gradients are scaled
    by before they are used, None for not at all; the norm says it.
    """

    data: list[Tensor]
    number: int
    handles: dict[int, Handle] = field(default_factory=dict)
    activations: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    gradients: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    kept: dict[tuple[str, int], Kept] = field(default_factory=dict)
    work: dict[tuple[str, int], WeightWork] = field(default_factory=dict)
    arriving: dict[tuple[Kind, int, int], Tensor] = field(default_factory=dict)
    loss: float = 0.0
    factor: float | None = None
    result: StepResult | None = None
