"""The rules a job must obey, each answered in the user's words before any process starts."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from engine.job.axes import AXES, dividing
from engine.job.bugs import BUGS
from engine.job.errors import MOST_TOLD, JobRefused, Unknown, told
from engine.job.families import FAMILIES
from engine.job.file_name import file_of
from engine.job.job import Job, Model, Plan
from engine.job.nearest import nearest_multiples
from engine.job.schedules import SCHEDULES

MAX_LOCAL_RANKS = 128
MAX_RANKS = 32_768  # in a simulation
MAX_NUMBER = 10**13  # of sizes; a larger one can neither be run nor simulated, and its divisors would take long to find
MAX_STEPS = 10**6  # the numbers of each step are kept, and their summary is read whole
MAX_LR = 1e37  # Adam's first step is ten times that, and the largest number of fp32 is 3.4e38
MAX_TEXT = 2**34  # bytes; each session reads the text once, to know whether it is the one of a kept reference
MAX_LAYER_RUNS = 100_000  # forwards of a block in one step; the program of a step is a list in memory


def check(job: Job) -> None:
    """Raises `JobRefused` with the first rule the job breaks; says nothing about this machine's size."""
    for complaint in _complaints(job):
        raise JobRefused(complaint)


def is_legal(job: Job) -> bool:
    """Whether the job breaks no rule."""
    return next(_complaints(job), None) is None


def check_ranks(job: Job) -> None:
    """Raises `JobRefused` for more ranks than can be simulated."""
    if job.world_size > MAX_RANKS:
        raise JobRefused(
            f"{_product(job)} = {job.world_size:,} ranks are more than the {MAX_RANKS:,} that can be simulated:"
            " use smaller degrees."
        )


def check_healthy(job: Job) -> None:
    """Raises `JobRefused` for a job with a fault, which only real processes can have."""
    if job.fault.bug:
        raise JobRefused(f"bug={job.fault.bug} is a fault of real runs: use `lab run`, or leave bug out.")


def check_reference(job: Job) -> None:
    """Raises `JobRefused` if the one process that a run is compared with would have too long a step."""
    one, batch = job.one_process(), job.training.batch
    if one.model.layers * one.plan.microbatches > MAX_LAYER_RUNS:
        raise JobRefused(
            f"batch={batch} takes one process, which the run is compared with, {one.plan.microbatches:,} micro-batches,"
            f" over {MAX_LAYER_RUNS:,} layer runs a step: use a smaller batch, or compare with nothing (--no-parity)."
        )


def check_here(job: Job, bytes_needed: int, bytes_available: int) -> None:
    """Raises `JobRefused` if real processes here cannot run the job: its kind, their number, or their memory."""
    if job.training.precision != "fp32":
        raise JobRefused(
            f"precision={job.training.precision} can only be simulated so far: use precision=fp32, or `lab simulate`."
        )
    if job.model.dropout:
        raise JobRefused(
            f"dropout={job.model.dropout} can only be simulated: real runs are compared with one process, and random"
            " masks would make them differ; use dropout=0, or `lab simulate`."
        )
    if job.world_size > MAX_LOCAL_RANKS:
        raise JobRefused(
            f"{_product(job)} = {job.world_size} processes are too many for one machine:"
            f" use degrees whose product is at most {MAX_LOCAL_RANKS}."
        )
    if bytes_needed > bytes_available:
        raise JobRefused(
            f"this job needs about {_gigabytes(bytes_needed)} and this machine has {_gigabytes(bytes_available)} free:"
            " use fewer layers, a smaller hidden or vocab, or a smaller batch."
        )


def _product(job: Job) -> str:
    return " × ".join(job.plan.degrees)


def notes(job: Job) -> list[str]:
    """Settings that are legal but change nothing in this job, so that nobody waits for their effect."""
    plan, said = job.plan, []
    knobs = ("family", *FAMILIES[job.model.family].knobs)
    for name, value in vars(job.model).items():
        if name not in knobs and value != getattr(Model, name):
            said.append(f"{name}={value} has no effect with family={job.model.family}.")
    if plan.sequence_parallel and plan.tp == 1:
        said.append("sequence_parallel has no effect with tp=1.")
    if plan.zero and plan.dp == 1:
        said.append(f"zero={plan.zero} has no effect with dp=1: there is no other replica to shard with.")
    if plan.keep_gathered and plan.zero != 3:
        said.append(f"keep_gathered has no effect with zero={plan.zero}: it is a ZeRO-3 setting.")
    if plan.pp == 1 and plan.schedule != Plan.schedule and _one_rank_order(plan.schedule) == _one_rank_order("1f1b"):
        said.append(f"schedule={plan.schedule} has no effect with pp=1: there is no pipeline.")
    if plan.prefetch != Plan.prefetch and (why := _no_prefetch(job)):
        said.append(f"prefetch={plan.prefetch} has no effect {why}.")
    if plan.bucket_kb != Plan.bucket_kb and (plan.replicas == 1 or plan.zero >= 2):
        why = "dp=1: no gradients are reduced" if plan.replicas == 1 else f"zero={plan.zero}: it reduces unit by unit"
        said.append(f"bucket_kb={plan.bucket_kb} has no effect with {why}.")
    if not plan.overlap and job.world_size == 1:
        said.append("overlap=false has no effect with one rank: nothing is communicated.")
    return said


def _one_rank_order(schedule: str) -> tuple[object, ...]:
    """In which order one rank runs three micro-batches."""
    return SCHEDULES[schedule].order(1, 3, 1)


def _no_prefetch(job: Job) -> str:
    """Why gathering ahead changes nothing, "" if it does."""
    plan = job.plan
    if job.effective_zero < 3:
        return f"with {f'zero={plan.zero}' if plan.zero < 3 else 'dp=1'}: only ZeRO-3 gathers parameters"
    return "" if plan.overlap else "with overlap off: each gather is waited for where it is issued"


def _complaints(job: Job) -> Iterator[str]:
    try:
        job.plan.degrees  # noqa: B018 (it says what is wrong with them)
    except Unknown as error:
        yield str(error)
    yield from _plain_numbers(job)
    yield from FAMILIES[job.model.family].complaints(job)
    yield from _pipeline_rules(job)
    yield from _data_rules(job)
    yield from _fault_rules(job)


def _plain_numbers(job: Job) -> Iterator[str]:
    options = job.options()
    whole = ("layers", "hidden", "heads", "seq", "vocab", "dp", "tp", "pp", "microbatches", "chunks")
    for name in (*whole, "bucket_kb", "steps", "batch"):
        if options[name] < 1:
            yield f"{name}={told(options[name])} is too small: use 1 or more."
    for name in (*whole, "bucket_kb", "prefetch", "batch", "steps"):
        most = MAX_STEPS if name == "steps" else MAX_NUMBER
        if options[name] > most:
            yield f"{name}={told(options[name])} is too large: use at most {most:,}."
    if not 0 <= job.plan.zero <= 3:
        yield f"zero={told(job.plan.zero)} is not a ZeRO stage: use 0, 1, 2 or 3."
    if job.plan.prefetch < 0:
        yield f"prefetch={told(job.plan.prefetch)} is negative: use 0 (gather when needed) or more."
    if not (math.isfinite(job.training.lr) and job.training.lr > 0):
        yield f"lr={job.training.lr} is not a positive number: use for example 0.001."
    if job.training.lr > MAX_LR:
        yield f"lr={job.training.lr} is too large for steps in fp32: use at most {MAX_LR:g}, for example 0.001."
    if not (math.isfinite(job.training.clip) and job.training.clip >= 0):
        yield f"clip={job.training.clip} is not a size: use 0 (never clip) or a positive number."
    if not 0 <= job.model.dropout < 1:
        yield f"dropout={job.model.dropout} is not a probability below 1: use 0 (none) or for example 0.1."
    if not 0 <= job.training.seed < 2**63:
        yield f"seed={told(job.training.seed)} is out of range: use 0 to {2**63 - 1}."
    order = job.plan.order.split("-")
    known = [axis.name for axis in AXES if axis.built_in or axis.name in order]
    if sorted(order) != sorted(known):
        yield f"order={told(job.plan.order)} does not name each axis once: use for example tp-dp-pp or dp-tp-pp."


def _pipeline_rules(job: Job) -> Iterator[str]:
    model, plan = job.model, job.plan
    stages = plan.pp * plan.chunks
    yield from SCHEDULES[plan.schedule].complaints(plan)
    if model.layers * plan.microbatches > MAX_LAYER_RUNS:
        yield (
            f"layers={model.layers} × microbatches={plan.microbatches} is over {MAX_LAYER_RUNS:,} layer runs a step:"
            f" use microbatches={max(1, MAX_LAYER_RUNS // model.layers)} or less and at most {MAX_LAYER_RUNS:,} layers."
        )
    if stages > model.layers:
        yield (
            f"pp={plan.pp} × chunks={plan.chunks} makes {stages} stages and layers={model.layers} cannot fill them:"
            f" use layers={stages} or more, or pp × chunks of at most {model.layers}."
        )
    if plan.partition is not None:
        if len(plan.partition) != stages:
            yield f"partition={_csv(plan.partition)} has {len(plan.partition)} entries: use {stages}, one a stage."
        if min(plan.partition, default=0) < 1 or sum(plan.partition) != model.layers:
            yield (
                f"partition={_csv(plan.partition)} must share out layers={model.layers}, at least 1 to each stage:"
                f" use for example {_csv(_even(model.layers, stages))}."
            )


def _data_rules(job: Job) -> Iterator[str]:
    plan, batch = job.plan, job.training.batch
    if batch % (plan.replicas * plan.microbatches):
        pieces = plan.replicas * plan.microbatches
        degrees = plan.degrees
        parts = " × ".join(f"{axis}={degrees[axis]}" for axis in dividing("batch") if axis in degrees)
        yield (
            f"{parts} × microbatches={plan.microbatches} = {pieces} does not divide batch={batch}:"
            f" use batch={nearest_multiples(batch, pieces)}."
        )
    text = job.training.text
    if text is not None:
        yield from _text_rules(text, job.model.seq)


def _fault_rules(job: Job) -> Iterator[str]:
    if not job.fault.bug:
        return
    try:
        yield from BUGS[job.fault.bug].complaints(job)
    except Unknown as error:
        yield str(error)


def _text_rules(text: str, seq: int) -> Iterator[str]:
    path, name = file_of(text), f"text={told(text, 2 * MOST_TOLD)}"
    size = _size(path)
    if size is None:
        yield f"{name} is not a file that exists: name a readable text file."
    elif not os.access(path, os.R_OK):
        yield f"{name} is a file you may not read: name a readable text file."
    elif size < seq + 2:
        yield f"{name} is shorter than seq={seq}: use a longer file or a smaller seq."
    elif size > MAX_TEXT:
        yield f"{name} has {_gigabytes(size)}: use a file of at most {_gigabytes(MAX_TEXT)}."


def _size(path: Path) -> int | None:
    """Of a regular file; None for anything else."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:  # such as a name that is too long
        return None


def _gigabytes(nbytes: int) -> str:
    return f"{nbytes / 1e9:,.1f} GB" if nbytes < 10**15 else f"{nbytes / 1e15:,.0f} million GB"


def _even(layers: int, stages: int) -> tuple[int, ...]:
    return tuple(layers // stages + (s < layers % stages) for s in range(stages))


def _csv(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
