"""Describes the machine we are on, by measuring it: the cluster called "here".

Its devices are the processor's cores, which ranks share. Real processes time the engine's own rows and gloo
(`engine.calibration.worker`), and `engine.calibration.fitting` makes a `Device` and a `Link` of what they found.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.calibration.fitting import Event, fit_device, fit_link
from engine.cluster.cluster import Cluster, Nodes, checked
from engine.execution.session import PRELOAD
from engine.machine import cores, total_memory
from engine.processes.launch import Member, launch
from engine.whole_file import write_whole

GROUPS = (2, 4, 8)  # ranks that communicate; the largest is how many processes there are
NAME = "here"


def calibrate(folder: Path, on_progress: Callable[[str], None] | None = None) -> Cluster:
    """Measures this machine for some 30 s, writes `<folder>/here.toml` and returns the same cluster.

    on_progress hears in a few words what was just timed. Raises `engine.processes.launch.RunFailed` if the processes
    fail, `ValueError` if the times make no sense. Other programs that run meanwhile do not make the cores look slower,
    but the messages between them.
    """
    events: list[Event] = []

    def on_event(name: str, event: Event) -> None:
        events.append(event)
        if on_progress:
            on_progress(_words(event))

    count = cores()
    members = [
        Member(f"rank {rank}", "engine.calibration.worker:measure", {"rank": rank, "cores": count, "groups": GROUPS})
        for rank in range(max(GROUPS))
    ]
    with tempfile.TemporaryDirectory(prefix="shardlab-") as scratch:
        launch(members, log_path=Path(scratch) / "log.txt", run_json=None, on_event=on_event, preload=PRELOAD)
    cluster = describe(events, count)
    save(cluster, folder / f"{NAME}.toml")
    return cluster


def save(cluster: Cluster, path: Path) -> None:
    """Writes the cluster where `load_cluster` finds it; a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, cluster.to_toml())


def describe(events: Sequence[Event], count: int) -> Cluster:
    """The cluster of `count` cores that explains what the processes found best."""
    link = fit_link(events, count)
    device = fit_device(events, f"one core ({platform.machine()})", total_memory() // count)
    return checked(
        Cluster(
            name=NAME,
            description=f"This machine, measured: {count} cores ({platform.machine()}) that ranks share, over gloo.",
            nodes=(Nodes(count=1, devices=count, device=device, inside=link),),
            across=link,
            backend="gloo",
            shared=True,
        )
    )


def _words(event: Event) -> str:
    match event["kind"]:
        case "product":
            return f"a matrix product of width {event['width']} in {event['dtype']}"
        case "row":
            return f"a computation of {event['flops']:.2g} FLOP in {event['operators']} operators"
        case "host":
            return "Python between two operations"
        case "traffic":
            return f"{event['op']} of {event['bytes']} bytes over {event['ranks']} ranks"
        case _:
            return "a stream through memory"
