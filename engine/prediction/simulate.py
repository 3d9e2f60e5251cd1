"""A job on a described cluster, from nothing: rehearse one rank of each kind, then replay."""

from __future__ import annotations

from pathlib import Path

from engine.cluster.cluster import Cluster
from engine.job.job import Job
from engine.prediction.equivalent_ranks import representatives
from engine.prediction.rehearsal.rehearse import rehearse
from engine.prediction.replay.replay import replay
from engine.program.compile import compile_job
from engine.program.program import Program
from engine.recording.tables import Recording


def simulate(
    job: Job,
    cluster: Cluster,
    program: Program | None = None,
    each_rank: bool = False,
    cache_dir: Path | None = None,
) -> Recording:
    """One step of `job` as `cluster` would carry it out.

    The recording holds one rank of each class that behaves alike; `stands_for` says which rank each other follows.
    program: of a schedule written by hand, checked. each_rank: record every rank all the same.
    cache_dir: a folder to keep templates in, which saves loading torch; see
    `engine.prediction.op_templates.template_cache`.
    Raises `ValueError` if the cluster is too small for the job.
    """
    program = program or compile_job(job)
    cluster.check_size(job.world_size)
    if each_rank:
        return replay(rehearse(job, program, backend=cluster.backend, cache_dir=cache_dir), job, cluster)
    like = representatives(job, cluster)
    rehearsed = rehearse(job, program, sorted(set(like)), cluster.backend, cache_dir)
    return replay(rehearsed, job, cluster, ranks_like=dict(enumerate(like)))
