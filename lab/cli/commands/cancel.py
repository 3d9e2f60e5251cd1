"""`lab cancel`: stops a run that the queue of launches carries out."""

from __future__ import annotations

import json
from argparse import Namespace

from lab.cli.commands.run import FAILED, OK, REFUSED, report_failure
from lab.launcher.queue import LaunchQueue
from lab.store.stored_run import Store

PATIENCE = 15.0  # seconds: one that does not answer is killed well before


def cancel(args: Namespace) -> int:
    """Waits for the end, so that afterwards no process of the run is left. Raises `RunNotFound`."""
    queue = LaunchQueue(Store())
    queue.ensure_worker()
    info = queue.store.find(args.run).info
    if info.status not in ("queued", "running"):
        return report_failure(
            "refused", f"run {info.id} does not go on: it is {info.status}.", REFUSED, as_json=args.json
        )
    if info.status == "running" and not queue.has(info.id):
        owner = f"process {info.owner.pid} on {info.owner.host}" if info.owner else "another program"
        words = f"run {info.id} is not from the queue: {owner} carries it out, so stop it there."
        return report_failure("refused", words, REFUSED, as_json=args.json)
    queue.cancel(info.id)
    launch = queue.wait(info.id, PATIENCE)
    if launch.active:
        words = f"run {info.id} is asked to stop but has not done so within {PATIENCE:g} s."
        return report_failure("failed", words, FAILED, as_json=args.json, run_id=info.id)
    if args.json:
        print(json.dumps({"run": info.id, "status": launch.state, "message": launch.message}))
    elif launch.state != "stopped":
        print(f"run {info.id} was {launch.state} before it could be stopped.")
    else:
        print(f"run {info.id} was stopped{'; what it did so far is kept' if launch.steps_done else ''}.")
    return OK
