"""What waits until nobody waits: done once, after the last message of a window, and never for a mere request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dashboard import once_quiet


class Clock:
    """Stands for all timers: they run out when the test says so."""

    def __init__(self) -> None:
        self.running: list[Timer] = []

    def run_out(self) -> None:
        for timer in self.running[:]:
            self.running.remove(timer)
            timer.do()


class Timer:
    def __init__(self, clock: Clock, seconds: float, do: Callable[[], None]) -> None:
        self.clock, self.seconds, self.do = clock, seconds, do
        self.daemon = False

    def start(self) -> None:
        assert self.daemon, "it must not keep the server alive"
        self.clock.running.append(self)

    def cancel(self) -> None:
        if self in self.clock.running:
            self.clock.running.remove(self)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(once_quiet.threading, "Timer", lambda seconds, do: Timer(made, seconds, do))
    return made


@pytest.fixture
def done() -> list[str]:
    return []


@pytest.fixture
def hears(done: list[str]) -> Callable[[str, int], None]:
    """A connection of a kind, over which so many messages come."""
    left = 0

    async def page(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(left):
            assert await receive() == "message"

    async def receive() -> Any:
        return "message"

    async def send(_: Any) -> None:
        raise AssertionError("nobody sends anything here")

    middleware: Any = once_quiet.OnceQuiet(page, lambda: done.append("done"), 3.0)

    def connection(kind: str, messages: int) -> None:
        nonlocal left
        left = messages
        asyncio.run(middleware({"type": kind}, receive, send))

    return connection


def test_each_message_of_any_window_begins_the_wait_anew(
    clock: Clock, done: list[str], hears: Callable[[str, int], None]
) -> None:
    hears("websocket", 3)
    hears("websocket", 2)
    assert [timer.seconds for timer in clock.running] == [3.0] and done == []
    clock.run_out()
    assert done == ["done"]


def test_it_is_done_once(clock: Clock, done: list[str], hears: Callable[[str, int], None]) -> None:
    hears("websocket", 1)
    clock.run_out()
    hears("websocket", 1)
    clock.run_out()
    assert done == ["done"]


def test_a_request_for_a_file_is_no_visit(clock: Clock, hears: Callable[[str, int], None]) -> None:
    hears("http", 2)
    assert clock.running == []
