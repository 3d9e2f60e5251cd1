"""What can wait until no window has asked for anything for a while, and would slow down whoever does."""

from __future__ import annotations

import threading
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class OnceQuiet:
    """ASGI middleware that does something once: `seconds` after the last message of any window. Never if none comes."""

    def __init__(self, app: ASGIApp, do: Callable[[], object], seconds: float = 3.0) -> None:
        self._app, self._do, self._seconds = app, do, seconds
        self._begun = False
        self._waiting: threading.Timer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noticed() -> Message:
            message = await receive()
            self._postpone()
            return message

        await self._app(scope, noticed if scope["type"] == "websocket" else receive, send)

    def _postpone(self) -> None:
        if self._begun:
            return
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = threading.Timer(self._seconds, self._begin)
        self._waiting.daemon = True
        self._waiting.start()

    def _begin(self) -> None:
        self._begun = True
        self._do()
