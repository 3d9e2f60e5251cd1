"""What the runtime asks of a model family's layers: the forward of each unit on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from engine.job.job import Job
from engine.layers.tensor import TensorAxis


class Layers(Protocol):
    """Made once a rank. axis: the tensor group, by whose linears and vectors a family's layers hold their parameters;
    so they run under tensor parallelism and with backwards in two parts.
    """

    axis: TensorAxis

    def __init__(self, job: Job, axis: TensorAxis, device: torch.device, dtype: torch.dtype) -> None: ...

    def forward(self, unit: str, params: Mapping[str, Tensor], x: Tensor | None, data: Tensor) -> Tensor:
        """Runs one unit.

        params: by full name. x: the previous unit's output, None for a source. data: the micro-batch's, of
        `engine.model.family.Family.data_shape`. Returns the unit's output, for the one with the loss its share of the
        global batch's loss: the sum over all ranks and micro-batches is the loss, without further scaling.
        """
        ...
