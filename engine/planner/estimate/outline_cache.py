"""Outlines are kept from one search to the next: the next stop of a slider, or another cluster, asks for many again."""

from __future__ import annotations

import threading
from collections import OrderedDict

from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.planner.estimate.events import Outline
from engine.planner.estimate.outline import outline
from engine.program.compile import PASSES

MOST_EVENTS = 600_000
"""Kept in all, a hundred bytes each; the outlines that were asked for last."""

Key = tuple[Job, object, tuple[str, ...]]
_lock = threading.Lock()
_kept: OrderedDict[Key, Outline] = OrderedDict()


def kept_outline(job: Job) -> Outline:
    """`outline(job)`. What is registered belongs to the key: a newcomer must not be given what was there before it."""
    key = (job, SCHEDULES[job.plan.schedule].order, PASSES.names)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    found = outline(job)
    with _lock:
        _kept[key] = found
        events = sum(len(one.events) for one in _kept.values())
        while events > MOST_EVENTS and len(_kept) > 1:
            events -= len(_kept.popitem(last=False)[1].events)
    return found
