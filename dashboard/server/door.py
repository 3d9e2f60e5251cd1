"""The door of the dashboard: whom it lets in, and what it answers to everybody else.

Loopback keeps other machines out, but not other users of this one, nor pages of other servers on it. So a visitor shows
the token of the printed address once and gets a cookie, as JupyterLab does it; and no page of another origin, which
differs in host or port, may call, embed or open a line to what is here.
"""

from __future__ import annotations

import re
import secrets
from urllib.parse import quote, unquote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.server.door_pages import asks_for_token, foreign, once_more, other_host

_LOCAL = re.compile(r"(127\.0\.0\.1|localhost)(?::([0-9]{1,5}))?", re.IGNORECASE)
"""Host names that lead here. The port is the browser's end of a tunnel, if there is one, and any."""

KEEP_APART = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Said with every answer: no other page frames it, holds its window, or takes its files for its own."""


class Door:
    """ASGI middleware before everything else, for pages and files as for the line to the scripts. None is left out, not
    even the question whether the server is well: whoever asks it here is a page that came in.

    token: what a visitor shows; None lets everybody on this machine in, but still no page of another origin.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        asked = HTTPConnection(scope)
        answer = _refusal(asked) or (self._entrance(asked) if self._token is not None else None)
        if answer is None:
            await self._app(scope, receive, _apart(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: 403
        else:
            await answer(scope, receive, _apart(send))

    def _entrance(self, asked: HTTPConnection) -> Response | None:
        """None for a visitor who has shown the token."""
        known = self._is_token(asked.cookies.get(_cookie(asked), ""))
        if asked.scope["type"] == "http" and "token" in asked.query_params:
            shown = self._is_token(asked.query_params["token"])
            return _onward(asked, self._token if shown else None) if shown or known else asks_for_token()
        return None if known else asks_for_token()

    def _is_token(self, text: str) -> bool:
        return self._token is not None and secrets.compare_digest(text.encode(), self._token.encode())


def _refusal(asked: HTTPConnection) -> Response | None:
    """What a request is told that does not come from a page of this very host and port; None for one that does."""
    hosts = asked.headers.getlist("host")
    if len(hosts) != 1 or not _LOCAL.fullmatch(hosts[0]):
        return other_host()
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in asked.headers.getlist("origin")):
        return foreign()
    if asked.scope["type"] == "websocket" or asked.headers.get("sec-fetch-site") not in ("same-site", "cross-site"):
        return None
    # to browsers another port is the same site, which cookies are sent to; only what is typed or followed may come in
    if asked.scope["method"] != "GET" or asked.headers.get("sec-fetch-mode") != "navigate":
        return foreign()
    if asked.headers.get("sec-fetch-dest") != "document":
        return foreign()
    if asked.headers["sec-fetch-site"] == "cross-site":  # browsers keep strict cookies from such a visit, once
        return once_more(_address(asked, with_token=True))
    return None


def _cookie(asked: HTTPConnection) -> str:
    """Its name: cookies do not tell ports apart, so the name has to."""
    found = _LOCAL.fullmatch(asked.headers["host"])
    return f"shardlab-dashboard-{(found and found[2]) or 80}"


def _onward(asked: HTTPConnection, token: str | None) -> Response:
    """To the same address without its token, which is kept in the browser's cookie for as long as the browser runs."""
    answer = RedirectResponse(_address(asked, with_token=False), 303, {"Cache-Control": "no-store"})
    if token is not None:
        answer.set_cookie(_cookie(asked), token, path="/", httponly=True, samesite="strict")
    return answer


def _address(asked: HTTPConnection, *, with_token: bool) -> str:
    """What was asked for, below this host: a path that begins with two slashes would name another one."""
    parts = asked.scope["query_string"].decode("latin-1").split("&")
    kept = [part for part in parts if part and (with_token or unquote(part.partition("=")[0]) != "token")]
    path = "/" + quote(asked.scope["path"].lstrip("/"))
    return f"{path}?{'&'.join(kept)}" if kept else path


def _apart(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(KEEP_APART)
        await send(message)

    return sent
