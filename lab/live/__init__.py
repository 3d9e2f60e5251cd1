"""A run as it is now, read from its folder by any process, while it goes on and after.

It may import `store` and the engine's recordings, and never waits for the run. Start with `follow.py`; `snapshot.py` is
what it hands out.
"""

from lab.live.follow import LiveRun
from lab.live.newest import TOTAL
from lab.live.snapshot import RankNow, Snapshot

__all__ = ["TOTAL", "LiveRun", "RankNow", "Snapshot"]
