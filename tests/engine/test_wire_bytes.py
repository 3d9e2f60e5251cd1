"""The factors that all byte counts rest on, against what the sockets of four gloo processes really sent."""

from __future__ import annotations

import os
import socket
import struct
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from engine.communication.comm import Comm, Group
from engine.execution.session import PRELOAD
from engine.processes.launch import Member, launch
from engine.processes.worker_process import MemberContext
from engine.recording.recorder import Recorder

RANKS = 4
ELEMENTS = 1 << 20  # 4 MiB of float32, beside which the headers of messages are small
BYTES_SENT = 200  # where struct tcp_info of linux/tcp.h keeps tcpi_bytes_sent and tcpi_bytes_retrans, since Linux 4.19


def bytes_sent() -> int:
    """What all TCP connections of this process have sent so far, each byte once.

    Even on one machine some are sent again: a busy receiver answers so late that they are taken for lost.
    """
    total = 0
    for opened in Path("/proc/self/fd").iterdir():
        try:
            if not str(opened.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(opened.name))) as sock:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:  # closed meanwhile, or not of TCP
            continue
        sent, again = struct.unpack_from("=QQ", info, BYTES_SENT)
        total += sent - again
    return total


def communicate(ctx: MemberContext) -> None:
    """Each kind of communication once on every rank, as the engine does it; tells what was booked and what was sent."""
    store = FileStore(ctx.rendezvous, RANKS)
    dist.init_process_group("gloo", store=store, rank=ctx.index, world_size=RANKS, timeout=timedelta(seconds=60))
    group = Group("dp", tuple(range(RANKS)), dist.group.WORLD)
    comm = Comm(ctx.index, "gloo", {"dp": group}, Recorder(ctx.index))
    full = torch.ones(ELEMENTS)
    mine = full.chunk(RANKS)[ctx.index]
    calls = {
        "all_reduce": lambda: comm.all_reduce(full, "dp"),
        "reduce_scatter": lambda: comm.reduce_scatter(mine, full, "dp"),
        "all_gather": lambda: comm.all_gather(full, mine.clone(), "dp"),
    }
    for op, call in calls.items():
        dist.barrier()
        before = bytes_sent()
        handle = call()
        comm.wait(handle)
        dist.barrier()  # all have received all, so that nothing waits in a socket's buffer uncounted
        ctx.emit({"op": op, "sent": bytes_sent() - before, "booked": handle.row.cost.wire_bytes})
    dist.barrier()  # a rank that ends takes its connections along, and with them what the others have sent on them


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    members = [Member(f"rank {rank}", f"{__name__}:communicate", {}) for rank in range(RANKS)]
    log: Path = tmp_path_factory.mktemp("wire") / "log.txt"
    launch(members, log_path=log, run_json=None, on_event=lambda _, event: events.append(event), preload=PRELOAD)
    return events


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much a connection has sent")
@pytest.mark.parametrize(
    ("op", "tensors"),
    [("all_reduce", 2 * 3 / 4), ("all_gather", 3 / 4), ("reduce_scatter", 2 * 3 / 4)],  # gloo: a whole all-reduce
)
def test_gloo_sends_what_a_ring_does_and_what_the_ledger_says(
    told: list[dict[str, Any]], op: str, tensors: float
) -> None:
    rows = [row for row in told if row["op"] == op]
    assert len(rows) == RANKS
    for row in rows:
        assert row["sent"] == pytest.approx(tensors * 4 * ELEMENTS, rel=0.01)
        assert row["booked"] == pytest.approx(row["sent"], rel=0.01)
