"""Clusters by name: the engine's presets, TOML files, and this machine as `lab calibrate` measured it."""

from __future__ import annotations

from pathlib import Path

from engine.cluster.cluster import Cluster, cluster_files, load_cluster
from engine.cluster.roofline import peak_flops
from engine.job.errors import JobRefused
from engine.job.job import Job
from lab.store.store import Store

BIG, SMALL = "a100-dgx", "toy-2x4"
HERE = "here"


def cluster_folder(store: Store) -> Path:
    """Where `lab calibrate` keeps what it measured, and where a user's own clusters are found by name."""
    return store.root / "clusters"


def find_cluster(name: str, store: Store | None = None) -> Cluster:
    """The cluster called `name`, or in the `.toml` file of that path. Raises `JobRefused`."""
    folder = cluster_folder(store or Store())
    if name == HERE and not (folder / f"{HERE}.toml").exists():
        raise JobRefused("cluster=here has not been measured yet: run `lab calibrate` once, it takes some 30 s.")
    try:
        return load_cluster(name, [folder])
    except ValueError as error:
        raise JobRefused(str(error)) from error


def cluster_names(store: Store) -> list[str]:
    """All clusters that have a name: the presets, and those of the store's folder."""
    return sorted(cluster_files([cluster_folder(store)]))


def default_cluster(job: Job, published: bool) -> str:
    """Where a job is simulated that names no cluster: published models on A100s, small ones on a small cluster.

    toy-2x4 is slow enough that the lab's default model meets there the trade-offs that GPT-3 meets on A100s.
    """
    fits_toy = job.world_size <= 8 and job.training.precision == "fp32"
    return SMALL if fits_toy and not published else BIG


def check_on(job: Job, cluster: Cluster) -> None:
    """Raises `JobRefused` if `cluster` has too few devices for the job, or cannot compute in its precision."""
    try:
        cluster.check_size(job.world_size)
        for group in cluster.nodes:
            peak_flops(group.device, job.training.precision)
    except ValueError as error:
        raise JobRefused(str(error)) from error
