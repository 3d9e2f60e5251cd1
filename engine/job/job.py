"""A job: which model to train, under which parallel plan, and how. The one input of the engine.

A job is data. The command line, Python keywords, a TOML file and a web form all make the same `Job`,
because all of them go through `Job.from_options`, whose names are the field names below.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pydantic
import tomli_w

from engine.job.axes import AXES, added_degrees, dividing, sharding_axis, with_degree
from engine.job.errors import JobRefused, told
from engine.job.families import FAMILIES
from engine.job.file_name import as_text
from engine.job.precision import PRECISIONS, Precision
from engine.job.registry import Registry
from engine.job.schedules import SCHEDULES
from engine.job.toml_file import read_toml

Recompute = Literal["none", "selective", "full"]
PrecisionName = Literal["fp32", "mixed16", "mixed18"]

REFERENCE_TOKENS = 4096
CHOICES: dict[str, Registry[Any]] = {"family": FAMILIES, "schedule": SCHEDULES}
"""Options whose values are the names of a registry."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is trained: a model family and its sizes."""

    family: str = "gpt"
    """Model family: gpt has pre-norm blocks, causal attention, GELU, learned positions."""
    layers: int = 4
    """Number of transformer blocks."""
    hidden: int = 64
    """Width of the residual stream, h."""
    heads: int = 4
    """Attention heads; each is hidden / heads wide."""
    seq: int = 64
    """Tokens per sequence, s."""
    vocab: int = 256
    """Vocabulary size. Text is read as bytes, so at least 256."""
    tied: bool = False
    """Use the token embedding as the output matrix too."""
    dropout: float = 0.0
    """Dropout probability; more than 0 can only be simulated, since random masks prove nothing equal."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the model is spread over dp × tp × pp ranks."""

    dp: int = 1
    """Data-parallel degree: replicas, each with its own part of the batch."""
    tp: int = 1
    """Tensor-parallel degree: ranks that split every matrix of a layer."""
    pp: int = 1
    """Pipeline-parallel degree: ranks that hold different layers."""
    zero: int = 0
    """ZeRO stage: 0 replicates, 1 shards the optimizer, 2 also gradients, 3 also parameters."""
    schedule: str = "1f1b"
    """Order in which a pipeline runs its micro-batches."""
    microbatches: int = 4
    """Micro-batches per step, on each data-parallel rank."""
    chunks: int = 1
    """Model chunks (virtual stages) per pipeline rank; 2 for zb-v, more than 1 else only for interleaved."""
    sequence_parallel: bool = False
    """Split norms and residuals along the sequence inside the tensor group."""
    overlap: bool = True
    """Start messages, gathers and gradient reductions early and compute meanwhile; off: wait for each at once."""
    prefetch: int = 1
    """ZeRO-3: how many units ahead of their use parameters are gathered."""
    keep_gathered: bool = False
    """ZeRO-3: gather parameters once a step and keep them, instead of before every use."""
    bucket_kb: int = 160
    """ZeRO-0/1: gradients are reduced in buckets of about this many KiB, last layers first. torch's DDP takes 25,600;
    small models need small buckets for the reductions to run under backward."""
    recompute: Recompute = "none"
    """Activations computed again in backward instead of kept: none, selective (inside attention) or full (blocks)."""
    order: str = "tp-dp-pp"
    """Rank order, fastest-varying axis first."""
    partition: tuple[int, ...] | None = None
    """Blocks in each stage, first to last; default: balanced by cost, embedding and head included."""
    axes: str = ""
    """Degrees of axes that were added to the engine's own, as NAME=DEGREE,NAME=DEGREE."""

    @cached_property
    def degrees(self) -> Mapping[str, int]:
        """Of the engine's axes, and of those others along which there is more than one rank.

        Raises `Unknown` for an axis that is not in `AXES`, `JobRefused` for an unreadable `axes`.
        """
        found = {axis.name: int(getattr(self, axis.name)) for axis in AXES if axis.built_in}
        more = {AXES[name].name: degree for name, degree in added_degrees(self.axes)} if self.axes else {}
        return found | {axis.name: more[axis.name] for axis in AXES if more.get(axis.name, 1) != 1}

    def degree(self, axis: str) -> int:
        """Raises `Unknown` for an axis that is not in `AXES`."""
        return self.degrees.get(AXES[axis].name, 1)

    @property
    def replicas(self) -> int:
        """How many parts the batch is divided in."""
        return prod(self.degree(axis) for axis in dividing("batch"))


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained on, for how long, and how the optimizer moves."""

    steps: int = 3
    """Optimizer steps."""
    batch: int = 16
    """Global batch: sequences per step over all data-parallel ranks and micro-batches."""
    lr: float = 1e-3
    """Adam's learning rate."""
    clip: float = 1.0
    """Clip the global gradient norm to this; 0 never clips."""
    precision: PrecisionName = "fp32"
    """Bytes of parameters, gradients, optimizer: fp32 4+4+8, mixed16 2+2+12, mixed18 2+4+12; mixed only simulated."""
    seed: int = 0
    """Seed of the initial weights and of the order of the data."""
    text: str | None = None
    """A text file to train on, read as bytes; default: the documentation that ships with Python."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Where the run is put to see how long it would take. It changes nothing that is computed."""

    cluster: str = ""
    """A described cluster, by preset name or TOML file, to replay the run on; `lab clusters` lists the presets."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is made to go wrong on purpose, in a real run and in nothing that is predicted."""

    bug: str = ""
    """A fault to put into the run, by name, to be found by its effects; `lab bugs` lists them."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Model, plan and training decide what a run computes, hardware what its replay is timed on, fault what it does
    wrong.
    """

    model: Model = field(default_factory=Model)
    plan: Plan = field(default_factory=Plan)
    training: Training = field(default_factory=Training)
    hardware: Hardware = field(default_factory=Hardware)
    fault: Fault = field(default_factory=Fault)

    @property
    def world_size(self) -> int:
        return prod(self.plan.degrees.values())

    @property
    def microbatch_size(self) -> int:
        """Sequences in one micro-batch on one replica, b."""
        return self.training.batch // (self.plan.replicas * self.plan.microbatches)

    @cached_property
    def effective_zero(self) -> int:
        """With one rank on the axis that ZeRO shards along, the data axis, every ZeRO stage is stage 0."""
        return self.plan.zero if self.plan.degree(sharding_axis()) > 1 else 0

    @property
    def precision(self) -> Precision:
        return PRECISIONS[self.training.precision]

    @property
    def scatters_sequence(self) -> bool:
        """Whether sequence parallelism has an effect: with one tensor rank there is nothing to divide among."""
        return self.plan.sequence_parallel and self.plan.tp > 1

    def one_process(self) -> Job:
        """The same model, data and optimizer on a single process: what every run is compared with.

        It has no fault, and depends on model and training alone: as few micro-batches as keep each within
        `REFERENCE_TOKENS`.
        """
        batch = self.training.batch
        most = min(batch, max(1, REFERENCE_TOKENS // self.model.seq))  # sequences; few, however large the batch is
        size = next((size for size in range(most, 0, -1) if batch % size == 0), 1)
        alone = Plan(microbatches=batch // size)
        return dataclasses.replace(self, plan=alone, hardware=Hardware(), fault=Fault())

    def under(self, schedule: str) -> Job:
        """The job with another schedule, and the chunks nearest to its own that one can have.

        Raises `Unknown` for a schedule that is none.
        """
        if schedule == self.plan.schedule:
            return self
        chunks = SCHEDULES[schedule].fitting_chunks(self.plan.chunks)
        partition = self.plan.partition if chunks == self.plan.chunks else None  # it has an entry for each stage
        plan = dataclasses.replace(self.plan, schedule=schedule, chunks=chunks, partition=partition)
        return dataclasses.replace(self, plan=plan)

    def options(self) -> dict[str, Any]:
        """The job as one flat mapping, the inverse of `from_options`."""
        return {name: value for part in _PARTS for name, value in _values(getattr(self, part)).items()}

    @classmethod
    def from_options(cls, base: Job | None = None, **options: Any) -> Job:
        """Builds a job from flat names (`dp=2, layers=8`), starting from `base`.

        Raises `JobRefused` for an unknown name or a value of the wrong type. The rules between knobs are
        `engine.job.rules.check`.
        """
        if base is not None and not isinstance(base, Job):
            raise JobRefused(f"job={told(base)} is not valid: use a Job, or the path of a TOML file.")
        home = {f.name: part for part, kind in _PARTS.items() for f in fields(kind)}
        changes: dict[str, dict[str, Any]] = {part: _values(getattr(base or cls(), part)) for part in _PARTS}
        for name, value in options.items():
            if name in AXES and name not in home:
                changes["plan"] = {**changes["plan"], "axes": with_degree(changes["plan"]["axes"], name, value)}
                continue
            if name not in home:
                near = difflib.get_close_matches(name, home, n=1, cutoff=0.5)
                hint = f": did you mean {near[0]}?" if near else f": the options are {', '.join(home)}."
                raise JobRefused(f"there is no option called {told(name)}{hint}")
            if name in _FILES and isinstance(value, str):
                value = as_text(value)
            changes[home[name]] = {**changes[home[name]], name: value}
        return cls(**{part: _typed(part, changes[part]) for part in _PARTS})

    @classmethod
    def from_toml(cls, path: Path, **overrides: Any) -> Job:
        """Reads a job file: tables [model], [plan], [training], [hardware], [fault].

        Raises `JobRefused` with the reason.
        """
        try:
            tables = read_toml(path, "the job file")
        except ValueError as error:
            raise JobRefused(str(error)) from error
        options: dict[str, Any] = {}
        tables_known = ", ".join(f"[{part}]" for part in _PARTS)
        for part, values in tables.items():
            if part not in _PARTS or not isinstance(values, dict):
                raise JobRefused(f"the job file {path} has {told(part)}: its tables are {tables_known}.")
            for name in values:
                if name not in {f.name for f in fields(_PARTS[part])} and not (part == "plan" and name in AXES):
                    raise JobRefused(f"the job file {path} has {told(name)} in [{part}], where it does not belong.")
            options |= values
        return cls.from_options(**(options | overrides))

    def to_toml(self) -> str:
        """The text of a job file, which `from_toml` reads; settings that are None are left out."""
        tables = {part: {k: v for k, v in _values(getattr(self, part)).items() if v is not None} for part in _PARTS}
        return tomli_w.dumps(tables)


_FILES = ("text", "cluster")
_PARTS: dict[str, type[Any]] = {
    "model": Model, "plan": Plan, "training": Training, "hardware": Hardware, "fault": Fault,
}  # fmt: skip


def _typed(part: str, values: dict[str, Any]) -> Any:
    """`values` as the dataclass of a part, types checked; a refusal says in plain words which field is wrong."""
    for name in CHOICES.keys() & values.keys():
        if not isinstance(values[name], str) or values[name] not in CHOICES[name]:
            *others, last = CHOICES[name].names
            choices = f"{', '.join(others)} or {last}" if others else last
            raise JobRefused(f"{name}={told(values[name])} is not valid: use {choices}.")
    for name, value in values.items():
        if isinstance(value, bool) and _kinds(part)[name] in (int, float):  # Python counts with them
            raise JobRefused(f"{name}={value} is not valid: use {_wanted(part, name)}.")
    try:
        return _adapter(part).validate_python(values)
    except pydantic.ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise JobRefused(f"{name}={told(values[name])} is not valid: use {_wanted(part, name)}.") from error


@cache
def _adapter(part: str) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(_PARTS[part])  # dear to make


@cache
def _kinds(part: str) -> dict[str, Any]:
    return get_type_hints(_PARTS[part])


def _wanted(part: str, name: str) -> str:
    """What a field takes, in words of ours."""
    kind = _kinds(part)[name]
    if choices := get_args(kind) if get_origin(kind) is Literal else ():
        return f"{', '.join(choices[:-1])} or {choices[-1]}"
    return _WANTED[kind]


_WANTED: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    str | None: "text",
    tuple[int, ...] | None: "whole numbers, such as 2,2",
}


def _values(part: Any) -> dict[str, Any]:
    """The fields of a part of a job, without what has been worked out from them (`vars` has that too)."""
    return {one.name: getattr(part, one.name) for one in fields(part)}
