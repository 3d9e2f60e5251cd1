"""What can wait until the first page is drawn, and would slow it down."""

from __future__ import annotations

import threading
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class AfterFirstVisit:
    """ASGI middleware that does something once: `seconds` after the first window has connected. Never if none does."""

    def __init__(self, app: ASGIApp, do: Callable[[], object], seconds: float = 5.0) -> None:
        self._app = app
        self._waiting = threading.Timer(seconds, do)
        self._waiting.daemon = True
        self._visited = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not self._visited:
            self._visited = True
            self._waiting.start()
        await self._app(scope, receive, send)
