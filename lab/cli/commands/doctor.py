"""`lab doctor`: does everything a run needs work on this machine? For each thing that does not: what to
do.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from engine import machine
from lab.cli.terminal.checks import Check

if TYPE_CHECKING:
    from engine.processes.worker_process import MemberContext

NEEDED = ("torch", "numpy", "pydantic", "rich", "tomli-w", "psutil", "pyarrow", "plotly")
ENOUGH_MEMORY = 2e9  # bytes; eight ranks of the demo take about half of it
ENOUGH_DISK = 2e8
CONNECTS_WITHIN = 2.0  # seconds; a firewall may drop what it forbids without a word


def checks() -> Iterator[Check]:
    """All checks, quick ones first; each is made when it is asked for."""
    looks: tuple[Callable[[], Check], ...] = (
        python, packages, cores, memory, run_folder, text, accelerators, processes,
    )  # fmt: skip
    for look in looks:
        try:
            yield look()
        except Exception as error:
            name = look.__name__.replace("_", " ")
            yield Check(name, f"{type(error).__name__}: {error}", "this check itself failed: please report it")
    yield Check("browser", "not needed: a report is one file that any browser opens")


def python() -> Check:
    wanted = sys.version_info >= (3, 11)
    return Check("python", platform.python_version(), "" if wanted else "install Python 3.11 or newer")


def packages() -> Check:
    found, missing = [], []
    for name in NEEDED:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    return Check("packages", ", ".join(found))


def cores() -> Check:
    count = machine.cores()
    more = "" if count >= 8 else "; more ranks than cores run correctly, but take turns"
    return Check("cores", f"{count}{more}")


def memory() -> Check:
    free = machine.free_memory()
    advice = "" if free >= ENOUGH_MEMORY else "close other programs: every process needs some 100 MB"
    return Check("memory", f"{free / 1e9:.1f} GB free", advice)


def run_folder() -> Check:
    """The folder may not exist yet; then it must be possible to make it."""
    from lab.store.store import default_root

    root = default_root()
    there = next(path for path in (root, *root.parents) if path.exists())
    advice = "set SHARDLAB_RUNS to a folder you can write to"
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"shardlab")
    except OSError as error:
        return Check("run folder", f"{root} cannot be written: {error.strerror}", advice)
    free = shutil.disk_usage(there).free
    found = f"{root}, {free / 1e9:.1f} GB free"
    return Check("run folder", found, "" if free >= ENOUGH_DISK else f"free some space, or {advice}")


def text() -> Check:
    if importlib.util.find_spec("pydoc_data") is not None:
        return Check("training text", "the documentation that ships with Python")
    return Check(
        "training text",
        "this Python ships without its documentation",
        "give a text file: lab run --text FILE",
    )


def accelerators() -> Check:
    from engine.execution.session import usable_gpus

    count = usable_gpus()
    return Check("GPUs", f"{count}; used when every rank can have one of its own" if count else "none, none needed")


def processes() -> Check:
    """Two processes load torch, connect over gloo and add two numbers, by the way every run goes."""
    from engine.processes.launch import Member, RunFailed, launch

    sums: list[float] = []
    members = [Member(f"rank {rank}", "lab.cli.commands.doctor:add_ranks", {"rank": rank}) for rank in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        try:
            launch(members, log_path=log, run_json=None, on_event=lambda _, event: sums.append(event["sum"]))
        except RunFailed as failed:
            return Check("processes", str(failed).splitlines()[0], _advice(str(failed)))
    if sums != [3.0, 3.0]:
        return Check("processes", f"an all-reduce of 1 and 2 gave {sums}", "reinstall torch")
    return Check("processes", "two processes loaded torch, connected over gloo and agreed that 1 + 2 = 3")


def _advice(failure: str) -> str:
    if "No module named" in failure or "ImportError" in failure:
        return "pip install --force-reinstall torch"
    if trouble := loopback_trouble():
        look_for = "look for a firewall or a sandbox that forbids it, or a loopback interface that is down"
        return f"a connection inside this machine failed too ({trouble}): {look_for}"
    return "connections inside this machine work, so no firewall is in the way: please report what was found here"


def loopback_trouble() -> str:
    """Why no two sockets of this machine can connect; "" if they can, over IPv4 or over IPv6."""
    troubles = []
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family) as server, socket.socket(family) as client:
                server.bind((address, 0))
                server.listen()
                client.settimeout(CONNECTS_WITHIN)
                client.connect(server.getsockname())
        except OSError as error:
            troubles.append(f"{address}: {error.strerror or error}")
        else:
            return ""
    return "; ".join(troubles)


def add_ranks(ctx: MemberContext) -> None:
    """Runs in each of the two processes."""
    import torch
    import torch.distributed as dist

    from engine.communication.groups import meet

    meet(ctx.rendezvous, ctx.index, ctx.size)
    number = torch.tensor([ctx.index + 1.0])
    dist.all_reduce(number)
    ctx.emit({"sum": number.item()})
