"""The commands about described clusters: `lab simulate`, `lab calibrate`, `lab clusters`."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cli.commands.run import FAILED, OK, console, from_file, print_run, report_failure
from lab.cli.options import given
from lab.facade import Run
from lab.store.store import Store

if TYPE_CHECKING:
    from engine.cluster.cluster import Cluster


def simulate(args: Namespace) -> int:
    from lab.cli.terminal.progress import Notice
    from lab.running import simulation
    from lab.store.clusters import find_cluster

    store = Store()
    job = simulation.job_to_simulate(args.model, None if args.job is None else Path(args.job), given(args))
    cluster = find_cluster(job.hardware.cluster, store)
    with Notice(f"simulating a step of {job.world_size:,} ranks (Ctrl-C ends it)", logged=False):
        with from_file(args) as by_hand:
            program = simulation.checked(job, cluster, by_hand)
        found = simulation.simulate_program(job, cluster, program, store, keep=not args.no_keep)
    print_run(Run.of(found), args.json)
    return OK


def calibrate(args: Namespace) -> int:
    from engine.calibration.calibrate import calibrate
    from engine.processes.launch import RunFailed
    from lab.cli.terminal.clusters import described
    from lab.cli.terminal.progress import Notice
    from lab.store.clusters import cluster_folder

    folder = cluster_folder(Store())
    try:
        with Notice("measuring this machine, some 30 s: close what else is running") as notice:
            cluster = calibrate(folder, notice)
    except (RunFailed, ValueError) as error:
        return report_failure("failed", f"this machine could not be measured: {error}", FAILED, as_json=args.json)
    if args.json:
        print(json.dumps(_as_json(cluster) | {"file": str(folder / f"{cluster.name}.toml")}))
        return OK
    console().print(described(cluster), highlight=False)
    print("Kept as cluster `here`. Try: lab simulate --dp 2 --tp 2 --pp 2 --cluster here")
    return OK


def clusters(args: Namespace) -> int:
    from engine.cluster.cluster import cluster_files, load_cluster
    from lab.cli.terminal.clusters import print_clusters
    from lab.store.clusters import cluster_folder, find_cluster

    store = Store()
    if args.names:
        found = [find_cluster(name, store) for name in args.names]
    else:
        found = []
        for name, path in cluster_files([cluster_folder(store)]).items():
            try:
                found.append(load_cluster(path))
            except ValueError as error:
                print(f"lab: cluster {name} is left out: {error}", file=sys.stderr)
    if args.json:
        print(json.dumps({"clusters": [_as_json(cluster) for cluster in found]}))
        return OK
    print_clusters(found, console(), sources=bool(args.names))
    return OK


def _as_json(cluster: Cluster) -> dict[str, object]:
    return asdict(cluster) | {"devices": cluster.devices}
