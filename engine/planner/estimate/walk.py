"""Walks an outline with the costs of many plans at once: when would each of them be through with a step?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.planner.estimate.events import Comes, Does, Outline, Waits

Floats = NDArray[np.float64]


def walk(outline: Outline, costs: Floats) -> Floats:
    """Seconds of a step, [plans]. costs: seconds of each of the outline's prices, [prices, columns, plans].

    A communication begins when all its members are there and the one before it on its stream is over, and everything
    else when its rank gets to it: the rules of `engine.prediction.replay.timing`.
    """
    several = costs.shape[1] > 1
    now = [np.zeros(costs.shape[1:]) for _ in range(outline.pp)]
    there: dict[int, Floats] = {}
    over: dict[int, Floats] = {}
    seconds = list(costs)
    for event in outline.events:
        if isinstance(event, Does):
            now[event.pp_rank] = now[event.pp_rank] + seconds[event.price]
        elif isinstance(event, Comes):
            there[event.arrival] = now[event.pp_rank]
        elif isinstance(event, Waits):
            now[event.pp_rank] = np.maximum(now[event.pp_rank], over[event.meeting])
        else:
            begin = there.pop(event.arrivals[0])
            for arrival in event.arrivals[1:]:
                begin = np.maximum(begin, there.pop(arrival))
            for meeting in event.behind:
                begin = np.maximum(begin, over[meeting])
            if several and event.replicas:
                begin = begin.max(axis=0, keepdims=True)
            over[event.meeting] = begin + seconds[event.price]
    return np.asarray(np.stack(now).max(axis=(0, 1)))
