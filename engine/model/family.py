"""What a model family is: which units a model has, what each holds, computes, takes and gives.

A family is one object in `engine.job.families.FAMILIES`. Everything else asks it: parameters and buckets, stages,
the runtime, messages, the rehearsal. What it gives no formula for is found by executing its units on meta tensors
(`engine.prediction.counted`), never taken from another family.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

from engine.job.families import FAMILIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.job.job import Job, Model
    from engine.model.params import Param

Shape = tuple[int, ...]


class Family(ABC):
    """A model family. Kinds are those of `engine.model.unit_kinds`; t is the tensor-parallel degree.

    layers: where its layers are, "module:class" of `engine.layers.layers.Layers`. closed_forms: where its formulas are,
    "module:object" of `engine.prediction.formulas.ClosedForms`, or None. knobs: the fields of `Model` that say
    something about it. label: as in "A GPT of 7 billion parameters".
    """

    name: str
    label: str
    layers: str
    closed_forms: str | None = None
    knobs: tuple[str, ...] = ("layers", "hidden")
    data_type: str = "int64"

    @abstractmethod
    def units(self, model: Model) -> tuple[str, ...]:
        """All that compute, in the order of the forward pass: a source, `model.layers` blocks, …, one with the loss."""

    @abstractmethod
    def params(self, model: Model, tp: int, kind: str) -> tuple[Param, ...]:
        """The parameters of a unit of a kind, by names inside the unit."""

    @abstractmethod
    def output_shape(self, job: Job, kind: str) -> Shape:
        """Of one micro-batch on one rank, what a unit of a kind gives to the next; () for the loss."""

    @abstractmethod
    def data_shape(self, job: Job) -> Shape:
        """Of one micro-batch's data, as every unit is given it."""

    @abstractmethod
    def batch(self, job: Job, step: int, replica: int) -> list[NDArray[Any]]:
        """The data of one replica's micro-batches, of `data_shape` and `data_type`.

        Together they depend on the global batch alone, not on the plan.
        """

    def needs(self, model: Model, unit: str) -> tuple[str, ...]:
        """The units whose parameters a compute unit uses."""
        return (unit,)

    def forward_cost(self, model: Model, kind: str) -> float:
        """Forward FLOPs for one token or sample; what the stage partition balances."""
        return 2.0 * sum(prod(p.shape) for p in self.params(model, 1, kind) if len(p.shape) > 1)

    def complaints(self, job: Job) -> Iterator[str]:
        """Which of its rules a job breaks, in the user's words."""
        yield from ()

    def smallest(self, model: Model) -> Model:
        """A model with the same kinds of units, each as it is in `model`, and few of them."""
        return model


def family_of(model: Model) -> Family:
    """Raises `Unknown`."""
    found: Family = FAMILIES[model.family]
    return found


def loaded(path: str) -> Any:
    """What is called "module:name". Loads torch where the module does."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def in_microbatches(job: Job, samples: NDArray[Any], replica: int) -> NDArray[Any]:
    """One replica's share of a global batch [batch, …]: [microbatches, b, …]. Replicas take contiguous parts."""
    shape = (job.plan.replicas, job.plan.microbatches, job.microbatch_size, *samples.shape[1:])
    share: NDArray[Any] = samples.reshape(shape)[replica]
    return share
