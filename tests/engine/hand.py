"""Rows written by hand, a few of them a rank, and what they cost by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.job.job import Job
from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.timing import Seconds
from engine.recording.tables import Op
from tests.engine.written import op

S = 10**9
JOB = Job.from_options()


def priced(**seconds: float) -> Callable[[StepRows], Seconds]:
    """Costs by the name of the row."""

    def costs(rows: StepRows) -> Seconds:
        values = np.array([seconds.get(name, 0.0) for name in rows.name])
        return Seconds(values, values)

    return costs


def work(rank: int, seq: int, name: str, **more: Any) -> Op:
    return op(rank=rank, seq=seq, name=name, kind="forward", **more)


def send(rank: int, seq: int, to: int, name: str = "send", micro: int = 0) -> Op:
    return op(rank=rank, seq=seq, name=name, kind="send_act", stream="pp_act", op="message", stage=rank,
              microbatch=micro, peers=(rank, to))  # fmt: skip


def receive(rank: int, seq: int, source: int, name: str = "recv", micro: int = 0) -> Op:
    return op(rank=rank, seq=seq, name=name, kind="recv_act", stream="pp_act", op="message", stage=source + 1,
              microbatch=micro, peers=(rank, source))  # fmt: skip


def reduction(rank: int, seq: int, name: str, peers: tuple[int, ...] = (0, 1), **more: Any) -> Op:
    return op(rank=rank, seq=seq, name=name, kind="reduce", stream="dp", op="all_reduce", peers=peers, **more)


def child(rank: int, seq: int, parent: int, before: int, peers: tuple[int, ...] = (0, 1)) -> Op:
    return op(rank=rank, seq=seq, name="all_reduce", kind="collective", stream="tp", op="all_reduce", peers=peers,
              parent=parent, before_flops=before)  # fmt: skip


def wait(rank: int, seq: int, ref: int) -> Op:
    return op(rank=rank, seq=seq, name=f"wait{seq}", kind="wait", ref=ref)
