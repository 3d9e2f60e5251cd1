"""Target functions for the tests of launching: ranks that behave, and ranks that misbehave on purpose."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from engine.processes.worker_process import MemberContext

NEW_NETWORK, NEW_NAME = 0x40000000, 0x04000000  # CLONE_NEWNET, CLONE_NEWUTS


def join(ctx: MemberContext) -> None:
    ctx.status.action(b"joining the others")
    ctx.status.waiting()
    size = ctx.payload.get("ranks", ctx.size)
    store = dist.FileStore(ctx.rendezvous, size)
    patience = timedelta(seconds=ctx.payload.get("patience", 60))
    dist.init_process_group("gloo", store=store, rank=ctx.index, world_size=size, timeout=patience)


def all_reduce(ctx: MemberContext, name: str = "all_reduce") -> float:
    ctx.status.action(name.encode())
    ctx.status.waiting()
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    ctx.status.computing()
    return tensor[0].item()


def sums(ctx: MemberContext) -> None:
    """One real all-reduce."""
    join(ctx)
    ctx.emit({"sum": all_reduce(ctx)})


def sums_elsewhere(ctx: MemberContext) -> None:
    """One all-reduce in the network of the process `payload["pid"]`, on a machine that is called `hostname`."""
    libc = ctypes.CDLL(None, use_errno=True)
    name = ctx.payload["hostname"].encode()
    with Path(f"/proc/{ctx.payload['pid']}/ns/net").open() as there:
        for failed in (
            libc.setns(there.fileno(), NEW_NETWORK), libc.unshare(NEW_NAME), libc.sethostname(name, len(name)),
        ):  # fmt: skip
            if failed:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    sums(ctx)


def counts(ctx: MemberContext) -> None:
    """Many events, in order."""
    for number in range(ctx.payload["events"]):
        ctx.emit({"number": number, "payload": "x" * ctx.payload.get("bytes", 0)})


def quiet(ctx: MemberContext) -> None:
    """Does nothing, and well."""


def talks(ctx: MemberContext) -> None:
    """Sends its payload and its surroundings back, and prints from Python and from below."""
    ctx.emit({"payload": ctx.payload, "index": ctx.index, "size": ctx.size, "rendezvous": ctx.rendezvous})
    ctx.emit({"cwd": str(Path.cwd()), "variable": os.environ.get("SHARDLAB_TEST"), "threads": torch.get_num_threads()})
    print("hello from Python")
    os.write(2, b"hello from below, without a newline")


def troubled(ctx: MemberContext) -> None:
    """All ranks all-reduce without end; the rank `payload["culprit"]` does `payload["trouble"]` after a few."""
    join(ctx)
    all_reduce(ctx)
    ctx.emit({"pid": os.getpid(), "supervisor": os.getppid()})
    for step in range(1_000_000):
        if ctx.index == ctx.payload.get("culprit") and step == 3:
            ctx.status.action(b"forward block1 mb2")
            TROUBLES[ctx.payload["trouble"]](ctx)
        all_reduce(ctx, f"all_reduce {step}")
        time.sleep(0.005)


def raises(ctx: MemberContext) -> None:
    raise ValueError("the loss is not a number")


def is_refused_by_the_system(ctx: MemberContext) -> None:
    raise OSError(errno.ENOSPC, "the words of this system", "/runs/live/rank001.jsonl")


def raises_from_lost_peer(ctx: MemberContext) -> None:
    try:
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242")
    except RuntimeError as error:
        raise LookupError("could not exchange") from error


def exits(ctx: MemberContext) -> None:
    print("leaving early")
    os._exit(3)


def exits_politely(ctx: MemberContext) -> None:
    sys.exit(3)


def never_joins(ctx: MemberContext) -> None:
    """Rank 1 does not come to the rendezvous, where the others poll for it."""
    ctx.emit({"pid": os.getpid()})
    if ctx.index == 1:
        time.sleep(1000)
    join(ctx)


def vanishes(ctx: MemberContext) -> None:
    os._exit(0)


def aborts(ctx: MemberContext) -> None:
    os.write(2, b"terminate called after throwing an instance of 'gloo::EnforceNotMet'\n")
    os.abort()


def mismatches(ctx: MemberContext) -> None:
    """A real abort of gloo in C++: tensors of different sizes in one all-reduce."""
    ctx.status.waiting()
    dist.all_reduce(torch.ones(100_000))


def sleeps(ctx: MemberContext) -> None:
    time.sleep(1000)


def spins(ctx: MemberContext) -> None:
    while True:
        pass


def works_in_silence(ctx: MemberContext) -> None:
    """Long work without a word, holding Python's lock so that not even the heartbeat gets a turn."""
    sum(range(ctx.payload["silence"]))


def emits_a_lambda(ctx: MemberContext) -> None:
    ctx.emit({"bad": lambda: None})


def kills_itself(ctx: MemberContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stops_itself(ctx: MemberContext) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def has_a_child_and_raises(ctx: MemberContext) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    ctx.emit({"pid": child.pid})
    raise ValueError("and its child is left")


TROUBLES = {
    function.__name__: function
    for function in (
        raises, is_refused_by_the_system, raises_from_lost_peer, exits, exits_politely, vanishes, aborts, mismatches,
        sleeps, spins, works_in_silence, emits_a_lambda, kills_itself, stops_itself, has_a_child_and_raises,
    )
}  # fmt: skip


def deadlocks(ctx: MemberContext) -> None:
    """Every rank waits to receive from its neighbour, and nobody sends; the last has already finished."""
    join(ctx)
    all_reduce(ctx)
    if ctx.index == ctx.size - 1:
        return
    ctx.status.action(f"recv act mb0 <- rank {1 - ctx.index}".encode())
    ctx.status.waiting()
    dist.recv(torch.ones(4), src=1 - ctx.index)


def awaits_a_file(ctx: MemberContext) -> None:
    """Waits for what another group leaves; the one that is to stop itself does so while waiting."""
    ctx.emit({"pid": os.getpid(), "supervisor": os.getppid()})
    ctx.status.action(b"waiting for the file")
    ctx.status.awaiting()
    while not Path(ctx.payload["file"]).exists():
        time.sleep(0.02)
        if ctx.index == ctx.payload.get("culprit"):
            stops_itself(ctx)


def leaves_a_file(ctx: MemberContext) -> None:
    """Works visibly for a while, then writes the file."""
    works_then_finishes(ctx)
    Path(ctx.payload["file"]).touch()


def works_then_finishes(ctx: MemberContext) -> None:
    """Rank 0 ends at once, the others work longer than the patience with hangs, but visibly."""
    if ctx.payload.get("hello"):
        ctx.emit({"pid": os.getpid(), "supervisor": os.getppid()})
    deadline = time.monotonic() + ctx.payload["seconds"] * (ctx.index > 0)
    while time.monotonic() < deadline:
        ctx.status.action(b"working")
        time.sleep(0.01)
