"""The knobs of a job and, for each, which settings are legal beside the others, and why the rest are not."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from typing import Any, Literal

from engine.cluster.cluster import Cluster, cluster_files
from engine.job import rules
from engine.job.errors import JobRefused, told
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from lab.store.clusters import cluster_folder, find_cluster
from lab.store.store import Store

Kind = Literal["slider", "choice", "switch"]
Value = int | float | str | bool

MOST_RANKS = 16
"""Real processes an explorer starts; more take longer than a slider should."""
LINK_SPEEDS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0)
_ADVICE = ": use batch="  # there is no such knob; where the slider goes on to is advice enough


@dataclass(frozen=True)
class Stop:
    """One setting of a knob. why: the sentence that refuses it, "" if it is legal."""

    value: Value
    text: str
    why: str = ""


@dataclass(frozen=True)
class Knob:
    """Something a learner can turn. changes: what follows, a real run or another replay of the one there is."""

    name: str
    label: str
    help: str
    kind: Kind
    values: tuple[Value, ...]
    changes: Literal["run", "replay"] = "run"

    def text(self, value: Value) -> str:
        """A value as the reader sees it."""
        if self.name == "schedule":
            return SCHEDULES[str(value)].label
        return link_text(float(value)) if self.name == "link_speed" else str(value)


def knobs() -> dict[str, Knob]:
    """All of them by name. The clusters are those known now."""
    clusters = tuple(cluster_files([cluster_folder(Store())]))
    eight = tuple(range(1, 9))
    found = [
        Knob("dp", "Data parallel (dp)", "replicas, each with its part of the batch", "slider", eight),
        Knob("tp", "Tensor parallel (tp)", "ranks that split every matrix", "slider", eight),
        Knob("pp", "Pipeline parallel (pp)", "ranks that hold different layers", "slider", eight),
        Knob("microbatches", "Micro-batches", "pieces of a replica's batch", "slider", tuple(range(1, 17))),
        Knob("chunks", "Chunks a rank", "model chunks on each pipeline rank", "slider", (1, 2, 3, 4)),
        Knob("schedule", "Schedule", "order in which a pipeline runs micro-batches", "choice", SCHEDULES.names),
        Knob(
            "zero", "ZeRO stage", "1 shards the optimizer, 2 also gradients, 3 also parameters", "slider", (0, 1, 2, 3)
        ),
        Knob("sequence_parallel", "Sequence parallel", "split norms along the sequence", "switch", (False, True)),
        Knob("cluster", "Cluster", "hardware the run is replayed on", "choice", clusters, "replay"),
        Knob("link_speed", "Link speed", "bandwidth of all the cluster's links", "slider", LINK_SPEEDS, "replay"),
    ]
    return {knob.name: knob for knob in found}


def link_text(speed: float) -> str:
    """×4 or ÷4."""
    return f"×{speed:g}" if speed >= 1 else f"÷{1 / speed:g}"


def link_speed(value: Any) -> float:
    """The factor on the bandwidth of links. Raises `JobRefused`."""
    if value not in LINK_SPEEDS:
        raise JobRefused(
            f"link_speed={told(value)} is not a stop: use one of {', '.join(map(link_text, LINK_SPEEDS))}."
        )
    return float(value)


def chosen(names: tuple[str, ...]) -> list[Knob]:
    """The knobs of these names, all of them for (). Raises `ValueError` for a name that is none."""
    known = knobs()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the knobs are {', '.join(known)}."
            raise ValueError(f"there is no knob called {told(name)}: {hint}")
    return [known[name] for name in names or known]


def described(knob: Knob, job: Job, link: float) -> dict[str, Any]:
    """A knob as the browser draws it: its stops and the one it is at."""
    value = link if knob.name == "link_speed" else job.options()[knob.name]
    found = stops(knob, job)
    if value not in [stop.value for stop in found]:
        found = sorted([*found, Stop(value, knob.text(value))], key=lambda stop: (str(type(stop.value)), stop.value))
    return {
        "name": knob.name, "label": knob.label, "help": knob.help, "kind": knob.kind, "value": value,
        "stops": [asdict(stop) for stop in found],
    }  # fmt: skip


def stops(knob: Knob, job: Job) -> list[Stop]:
    """Every setting of a knob, the others staying as they are in `job`."""
    here = None if knob.name == "cluster" else find_cluster(job.hardware.cluster)  # read once for all settings
    return [Stop(value, knob.text(value), refusal(job, knob.name, value, here)) for value in knob.values]


def refusal(job: Job, name: str, value: Value, cluster: Cluster | None = None) -> str:
    """Why `name` cannot become `value`, "" if it can. cluster: that of `job`, if it is at hand."""
    if name == "link_speed" or value == job.options()[name]:  # as it is now, it has been checked
        return ""
    try:
        turned(job, name, value, cluster)
    except JobRefused as error:
        return str(error).split(_ADVICE)[0].rstrip(".") + "."
    return ""


def turned(job: Job, name: str, value: Value, cluster: Cluster | None = None) -> Job:
    """`job` with one knob turned. A schedule brings its number of chunks along. Raises `JobRefused`."""
    found = Job.from_options(job, **{name: value})
    if name == "schedule":
        found = job.under(found.plan.schedule)
    check(found, cluster)
    return found


def check(job: Job, cluster: Cluster | None = None) -> None:
    """Raises `JobRefused` if the explorer cannot run `job` here, or replay it on its cluster."""
    rules.check(job)
    rules.check_healthy(job)
    if job.world_size > MOST_RANKS:
        raise JobRefused(
            f"dp × tp × pp = {job.world_size} processes are more than the {MOST_RANKS} an explorer starts:"
            " use smaller degrees, or lab.run."
        )
    try:
        (cluster or find_cluster(job.hardware.cluster)).check_size(job.world_size)
    except ValueError as error:
        raise JobRefused(str(error)) from error


def companions(before: Job, after: Job, name: str) -> str:
    """What else changed when `name` was turned, in words."""
    was, now = before.options(), after.options()
    also = [f"{other}={now[other]}" for other in now if other != name and now[other] != was[other]]
    return f"{name}={now[name]} also sets {', '.join(also)}." if also and name in now else ""
