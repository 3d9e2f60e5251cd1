"""`lab cancel`: stops a run that the queue of launches carries out."""

from __future__ import annotations

import json
import re
from argparse import Namespace

from lab.cli.commands.run import FAILED, OK, REFUSED, say
from lab.launcher.queue import Launch, LaunchQueue
from lab.store.stored_run import RunNotFound, Store

PATIENCE = 15.0  # seconds: one that does not answer is killed well before


def cancel(args: Namespace) -> int:
    """Waits for the end, so that afterwards no process of the run is left."""
    queue = LaunchQueue(Store())
    launch = _launch(queue, args.run)
    if isinstance(launch, str):
        return say("refused", launch, REFUSED, as_json=args.json)
    queue.cancel(launch.id)
    launch = queue.wait(launch.id, PATIENCE)
    if launch.active:
        words = f"{_name(launch)} is asked to stop but has not done so within {PATIENCE:g} s."
        return say("failed", words, FAILED, as_json=args.json, run_id=launch.run_id)
    if args.json:
        told = {"run": launch.run_id, "launch": launch.id, "status": launch.state, "message": launch.message}
        print(json.dumps(told))
    elif launch.state != "stopped":
        print(f"{_name(launch)} was {launch.state} before it could be stopped.")
    else:
        kept = "; what it did so far is kept" if launch.run_id else ""
        print(f"{_name(launch)} was stopped{kept}.")
    return OK


def _launch(queue: LaunchQueue, name: str) -> Launch | str:
    """The launch under way, or waiting, with this number or whose run goes by that name; or why there is none.

    Raises `RunNotFound` if there is no such run at all.
    """
    if re.fullmatch(r"\d{1,7}", name):  # the beginning of a run's id can be a number too, but a longer one
        try:
            launch = queue.get(int(name))
        except RunNotFound:
            pass
        else:
            return launch if launch.active else f"launch {launch.id} has ended already: it is {launch.state}."
    queue.ensure_worker()
    info = queue.store.find(name).info
    if info.status != "running":
        return f"run {info.id} does not go on: it is {info.status}."
    found = queue.carrying_out(info.id)
    if found is None:
        owner = f"process {info.owner.pid} on {info.owner.host}" if info.owner else "another program"
        return f"run {info.id} is not from the queue: {owner} carries it out, so stop it there."
    return found


def _name(launch: Launch) -> str:
    return f"run {launch.run_id}" if launch.run_id else f"launch {launch.id}"
