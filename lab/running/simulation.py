"""Simulates a job on a described cluster, and replays runs there. The results are runs like any other.

A simulation starts no processes: `engine.prediction.simulate` executes one unit of each kind on tensors without data
and puts what it finds on the cluster. It needs no store; with `keep` it becomes a run folder with status "simulated".
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.job import rules
from engine.job.errors import JobRefused, Unknown
from engine.job.job import Hardware, Job
from engine.job.schedules import SCHEDULES
from engine.whole_file import write_whole
from lab.running.arguments import one_of
from lab.store.clusters import check_on, default_cluster, find_cluster
from lab.store.folder import Entry, RunInfo, digest
from lab.store.store import Store, new_info
from lab.store.stored_run import Known, RunCorrupt, StoredRun

if TYPE_CHECKING:
    from engine.cluster.cluster import Cluster
    from engine.program.program import Program
    from engine.program.schedules.text import Written
    from engine.recording.tables import Recording

UNKEPT = "simulation"
"""The id of a simulation that is in no store."""
EACH_RANK_ROWS = 20_000
"""With so few actions over all ranks, and at most `MOST_LISTED` ranks, every rank is recorded."""
MOST_LISTED = 64
MOST_LAYERS = 1_024
MOST_ACTIONS = 300_000
"""Of a preset's micro-batches: with as many a simulation takes some seconds."""
MOST_BYTES, MOST_FLOPS = 2**60, 2**60
"""Of a rank, and of an operation: what 64 bits can count."""


def simulate(
    model: str | None = None,
    job: Job | str | Path | None = None,
    by_hand: Program | Written | None = None,
    keep: bool = False,
    store: Store | None = None,
    **options: Any,
) -> StoredRun:
    """Says what a plan would do on a cluster; see `lab.simulate`. by_hand: as in `simulate_job`."""
    store = store or Store()
    chosen = job_to_simulate(model, job, options)
    cluster = find_cluster(chosen.hardware.cluster, store)
    return simulate_job(chosen, cluster, by_hand, store, keep)


def job_to_simulate(model: str | None, base: Job | str | Path | None, options: dict[str, Any]) -> Job:
    """The job of one step with every choice made that was left open. Raises `JobRefused`.

    Of a preset without `microbatches`: as many as make each a single sequence, or as few sequences as keep the program
    below `MOST_ACTIONS`. Without a cluster: see `lab.store.clusters.default_cluster`.
    """
    if model is not None:
        one_of("model", model, (str,), "the name of a published model")
    if model is not None and base is not None:
        raise JobRefused("model and job both say what to train: leave one of the two out.")
    if isinstance(base, (str, Path)):
        chosen = Job.from_toml(Path(base), **options)
    elif model is not None:
        from engine.prediction.published_models import preset

        chosen = Job.from_options(preset(model).job, **options)
        if "microbatches" not in options:
            chosen = Job.from_options(chosen, microbatches=_most_microbatches(chosen))
    else:
        chosen = Job.from_options(base, **options)
    name = chosen.hardware.cluster or default_cluster(chosen, published=model is not None)
    return Job.from_options(chosen, steps=min(chosen.training.steps, 1), cluster=name)  # none at all is refused


def _most_microbatches(job: Job) -> int:
    """The most micro-batches of whole sequences that the rules allow; 1 if none are, so that the rule is told."""
    dp, pp, batch = job.plan.replicas, job.plan.pp, job.training.batch
    if min(dp, pp, batch, job.model.layers) < 1 or batch % dp:
        return 1
    each = batch // dp
    most = min(each, MOST_ACTIONS // (2 * job.model.layers + 4 * max(pp, 1) * max(job.plan.chunks, 1)))
    return next((m for m in range(most, 0, -1) if each % m == 0 and _orders(job, m)), 1)


def _orders(job: Job, microbatches: int) -> bool:
    """Whether the job's schedule can order so many micro-batches."""
    plan = replace(job.plan, microbatches=microbatches)
    return not any(SCHEDULES[plan.schedule].legal(plan))


def simulate_job(
    job: Job,
    cluster: Cluster,
    by_hand: Program | Written | None = None,
    store: Store | None = None,
    keep: bool = False,
) -> StoredRun:
    """One step of `job` on `cluster`; see `checked` and `simulate_program`."""
    began = time.perf_counter()
    return simulate_program(job, cluster, checked(job, cluster, by_hand), store, keep, began)


def checked(job: Job, cluster: Cluster, by_hand: Program | Written | None = None) -> Program:
    """The program of a job that makes sense on `cluster`: what its plan compiles to, or what is written by hand.

    Raises `JobRefused`, for what is written by hand `ValueError` and `ProgramError`.
    """
    from engine.program.compile import compile_job
    from engine.program.handwritten import checked_program

    rules.check(job)
    check_fits(job, cluster)
    return compile_job(job) if by_hand is None else checked_program(job, by_hand)


def simulate_program(
    job: Job,
    cluster: Cluster,
    program: Program,
    store: Store | None = None,
    keep: bool = False,
    began: float | None = None,
) -> StoredRun:
    """One step of a program that was `checked`. Raises `JobRefused` for what cannot be timed on `cluster`.

    keep: in the store; else in memory, and nothing is left behind, unless the store exists: then it keeps templates.
    began: when it was asked for, by `time.perf_counter`; default: now.
    """
    from engine.prediction.simulate import simulate

    began, store = began or time.perf_counter(), store or Store()
    actions = sum(map(len, program.lanes)) * job.world_size // job.plan.pp
    few = job.world_size <= MOST_LISTED and actions <= EACH_RANK_ROWS
    templates = store.root / "templates" if keep or store.root.exists() else None
    try:
        recording = simulate(job, cluster, program, each_rank=few, cache_dir=templates)
    except ValueError as error:
        raise JobRefused(str(error)) from error
    run = _run(job, program, recording, cluster, store, began)
    return stored(run, store) if keep else run


def check_fits(job: Job, cluster: Cluster) -> None:
    """Raises `JobRefused` for a job that obeys the rules if it has a bug put in, does not fit the cluster's size, or
    cannot be counted."""
    rules.check_healthy(job)
    rules.check_ranks(job)
    if job.model.layers > MOST_LAYERS:
        raise JobRefused(f"layers={job.model.layers} is more than can be simulated: use at most {MOST_LAYERS}.")
    check_on(job, cluster)
    _check_countable(job, cluster)


def _check_countable(job: Job, cluster: Cluster) -> None:
    """Raises `JobRefused` for what would overflow: bytes of a rank, FLOPs of an operation, picoseconds of a step."""
    from engine.cluster.roofline import peak_flops
    from engine.model.units import one_of_each_kind
    from engine.prediction.formulas import activation_bytes, model_flops, parameters
    from engine.prediction.replay.replay import MOST_SECONDS

    model, plan = job.model, job.plan
    kept = sum(activation_bytes(job, unit) for unit in one_of_each_kind(model))
    held = max(parameters(job) * job.precision.state, kept * model.layers * plan.microbatches)
    flops = model_flops(job)
    if held > MOST_BYTES or flops > MOST_FLOPS * model.layers * plan.microbatches * plan.replicas:
        raise JobRefused(
            "the bytes or FLOPs of this job are too large to be counted exactly:"
            " use a smaller hidden, seq, vocab or batch."
        )
    fastest = max(peak_flops(group.device, job.training.precision) for group in cluster.nodes)
    if flops / (fastest * job.world_size) > MOST_SECONDS:
        raise JobRefused(
            f"a step takes more than 50 days on cluster {cluster.name}:"
            " use more ranks, a smaller job or a faster cluster."
        )


def _run(
    job: Job, program: Program, recording: Recording, cluster: Cluster, store: Store | None, began: float
) -> StoredRun:
    from lab.store.simulated_summary import summarise_simulated

    info = new_info(
        UNKEPT, job, tuple(sys.argv), datetime.now().astimezone(), status="simulated", backend=cluster.backend,
        device=cluster.nodes[0].device.name, backend_reason=f"as cluster {cluster.name} is described",
    )  # fmt: skip
    summary = summarise_simulated(info, job, program, recording, cluster, time.perf_counter() - began)
    return StoredRun(Entry(info, digest(summary)), store or Store(), Known(job, program, recording, summary, cluster))


def replayed(run: StoredRun, cluster: str | Cluster | None = None) -> StoredRun:
    """A run as another cluster would carry it out; see `Run.replay`."""
    from engine.cluster.cluster import Cluster
    from engine.program.checks.check import ProgramError

    if cluster is None:
        cluster = run.cluster
    if cluster is None:
        raise JobRefused(
            f'run {run.id} names no cluster: say which, for example run.replay("{default_name(run.job)}").'
        )
    put = cluster if isinstance(cluster, Cluster) else find_cluster(cluster, run.store)
    name = cluster if isinstance(cluster, str) else put.name
    job = replace(run.job, hardware=Hardware(cluster=name))
    if run.recording.stands_for:  # other ranks may be alike there
        try:
            return simulate_job(job, put, run.program, run.store)
        except ProgramError as error:
            why = str(error).splitlines()[0]
            raise RunCorrupt(run.id, f"the program of run {run.id} does not train its job: {why}") from error
    return replay_of(run.id, job, run.program, run.recording, put, run.store)


def replay_of(
    run_id: str, job: Job, program: Program, recording: Recording, cluster: Cluster, store: Store
) -> StoredRun:
    """What ranks did on `cluster`, every rank of them recorded. Raises `JobRefused`, which calls the run `run_id`."""
    from engine.prediction.replay.replay import replay

    began = time.perf_counter()
    check_on(job, cluster)
    try:
        found = replay(recording, job, cluster)
    except Unknown:
        raise
    except ValueError as error:
        raise JobRefused(f"run {run_id} cannot be replayed: {error}") from error
    return _run(job, program, found, cluster, store, began)


def default_name(job: Job) -> str:
    """The cluster on which a job is simulated that names none."""
    return default_cluster(job, published=False)


def stored(run: StoredRun, store: Store) -> StoredRun:
    """The simulation as a run in the store. Raises `StoreError`."""
    from engine.recording.parquet import write_recording

    def fill(draft: Path, info: RunInfo) -> None:
        write_recording(draft, run.recording)
        (draft / "program.txt").write_text(run.program.text(), encoding="utf-8")
        assert run.cluster is not None
        (draft / "cluster.toml").write_text(run.cluster.to_toml(), encoding="utf-8")
        summary = run.summary | {"run": info.id}
        write_whole(draft / "summary.json", json.dumps(summary, indent=2, allow_nan=False))

    same = {name: getattr(run.info, name) for name in ("status", "backend", "device", "backend_reason")}
    info = store.create(run.job, run.info.command, fill, **same)
    known = Known(run.job, run.program, run.recording, run.summary | {"run": info.id}, run.cluster)
    return StoredRun(Entry(info, run.digest), store, known)
