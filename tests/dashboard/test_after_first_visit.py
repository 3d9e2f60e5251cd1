"""What waits until the first page is drawn: done once, however many windows come, and not for a mere request."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from dashboard.server.deferred_warmup import AfterFirstVisit


async def _page(scope: Any, receive: Any, send: Any) -> None:
    pass


def times_done(*kinds: str) -> int:
    """How often it was done after these connections, when all that waited has ended."""
    done: list[str] = []
    before = set(threading.enumerate())
    middleware: Any = AfterFirstVisit(_page, lambda: done.append("done"), seconds=0.1)
    for kind in kinds:
        asyncio.run(middleware({"type": kind}, None, None))
    waiting = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    for thread in set(waiting) - before:
        assert thread.daemon, "it must not keep the server alive"
        thread.join(30)
    return len(done)


def test_it_is_done_once_after_the_first_of_several_windows() -> None:
    assert times_done("websocket", "http", "websocket") == 1


def test_a_request_for_a_file_is_no_visit() -> None:
    assert times_done("http", "http") == 0
