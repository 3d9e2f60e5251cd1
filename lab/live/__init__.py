"""A run as it is now, read from its folder by any process, while it goes on and after."""

from lab.live.follow import LiveRun
from lab.live.newest import TOTAL
from lab.live.snapshot import RankNow, Snapshot

__all__ = ["TOTAL", "LiveRun", "RankNow", "Snapshot"]
