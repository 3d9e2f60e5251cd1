"""The planner for people: `lab.plan`, and what it finds as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.job.errors import JobRefused
from engine.job.job import Job
from lab.running.arguments import cluster_name, number, one_of, whole

if TYPE_CHECKING:
    from engine.planner.result import Candidate, Search

DEFAULT_CLUSTER = "a100-dgx"
SHOWN = 5


def plan(
    model: str | Job, cluster: str, gpus: int, *, refine: int = 5, reserve_gb: float | None = None, **fixed: Any
) -> Search:
    """See `lab.plan`."""
    from engine.planner.search import search
    from engine.prediction.published_models import Preset
    from lab.store.clusters import find_cluster
    from lab.store.store import Store

    one_of("model", model, (str, Job, Preset), "the name of a published model, or a Job")
    cluster_name(cluster)
    gpus, refine = whole("gpus", gpus, 1), whole("refine", refine)
    reserve = None if reserve_gb is None else round(number("reserve_gb", reserve_gb) * 1e9)
    try:
        store = Store()
        described = find_cluster(cluster, store)
        folder = store.root / "templates" if store.root.exists() else None
        return search(model, described, gpus, fixed=fixed, reserve_bytes=reserve, refine=refine, cache_dir=folder)
    except JobRefused:
        raise
    except OverflowError:
        raise JobRefused(
            "the bytes or FLOPs of this model are too many to be counted: use a smaller hidden, seq, vocab or batch."
        ) from None
    except ValueError as error:  # of the cluster: no such name, not TOML, no peak in this precision
        raise JobRefused(str(error)) from error


def as_json(found: Search, top: int) -> dict[str, Any]:
    """What `lab plan` shows, as plain values."""
    return {
        "gpus": found.gpus, "idle_gpus": found.idle_gpus, "legal": found.legal, "fitting": found.fitting,
        "limit_bytes": found.limit_bytes, "terms": found.terms,
        "plans": [_candidate(one) for one in found.ranked[:top]],
        "untried_partitions": found.untried_partitions,
        "nearest": {knob: _candidate(one) for knob, one in found.nearest.items()},
        "dropped": [
            {"category": d.category, "count": d.count, "over_bytes": d.over, "example": _plan(d.example)}
            for d in found.dropped
        ],
        "sentences": list(found.sentences),
    }  # fmt: skip


def _candidate(one: Candidate) -> dict[str, Any]:
    return _plan(one.job) | {
        "seconds": one.seconds, "mfu": one.mfu, "tokens_per_second": one.tokens_per_second, "bytes": one.bytes,
        "memory": one.memory, "components": one.components, "bubble": one.bubble, "replayed": one.refined,
        "idle_gpus": one.idle_gpus,
    }  # fmt: skip


def _plan(job: Job) -> dict[str, Any]:
    names = (
        "dp", "tp", "pp", "schedule", "chunks", "partition", "zero", "microbatches", "sequence_parallel", "recompute",
    )  # fmt: skip
    return {name: getattr(job.plan, name) for name in names} | {"microbatch_size": job.microbatch_size}
