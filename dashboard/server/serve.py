"""`lab dashboard`: the dashboard for this machine alone, in this very process, so that one Ctrl-C ends it.

Runs it has launched are carried out by a process of their own. They go on, and the next dashboard finds them again.
"""

from __future__ import annotations

import json
import secrets
import socket
import sys
import threading
import time
import webbrowser
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

from dashboard.server.browser import for_browser
from dashboard.server.own_settings import SAFE, ignore_those_of_others
from lab.cli.ports import LOOPBACK, free_port, wished_port
from lab.store.store import Store, StoreError
from lab.store.trash import empty as empty_trash

FIRST_PORT = 8501


def dashboard(args: Namespace) -> int:
    port = wished_port(args.port) or free_port(FIRST_PORT)
    empty_trash(Store())
    ignore_those_of_others()
    ask_nobody()
    from dashboard.server.asgi import application  # takes a second

    address = Address(port, None if args.no_token else secrets.token_urlsafe(24))
    with _opened(address, args.no_browser) as opened:
        threading.Thread(target=_announce, args=(address, args.json, opened), daemon=True).start()
        with suppress(KeyboardInterrupt):
            application(address.token).run(config={**SAFE, "server.port": port})
    _farewell()
    return 0


@dataclass(frozen=True)
class Address:
    """Where the dashboard is. token: None lets in whoever is on this machine."""

    port: int
    token: str | None

    @property
    def url(self) -> str:
        shown = "" if self.token is None else f"?token={self.token}"
        return f"http://{LOOPBACK}:{self.port}/{shown}"

    def words(self) -> str:
        said = (
            "Everybody on this machine can open it"
            if self.token is None
            else "The token lets you in: give it to nobody"
        )
        return f"\n    {self.url}\n\n{said}. Ctrl-C ends the dashboard."


def _opened(address: Address, no_browser: bool) -> AbstractContextManager[str | None]:
    """What the browser is opened with, if it is."""
    if no_browser or address.token is None:
        return nullcontext(None if no_browser else address.url)
    return for_browser(address.url, Store().root, address.port)


def ask_nobody() -> None:
    """Keeps Streamlit from asking a web service for this machine's address, which it does, to tell whether a page is
    its own, when one from elsewhere tries to connect. Here only loopback is.
    """
    from streamlit import net_util

    for name in ("get_external_ip", "get_internal_ip"):
        assert hasattr(net_util, name)
        setattr(net_util, name, lambda: LOOPBACK)


def _load() -> None:
    """Imports what pages need: some seconds on a busy machine."""
    import pandas  # noqa: F401
    import plotly.graph_objects  # noqa: F401

    import lab.views.figures  # noqa: F401


def _load_pages() -> None:
    """What the first page imports."""
    import streamlit.emojis  # noqa: F401  # compiles a large expression, which the page's icon is looked up with

    import dashboard.data.cached_runs
    import dashboard.runs.run_actions
    import dashboard.runs.runs_table  # noqa: F401


def _announce(address: Address, as_json: bool, opened: str | None) -> None:
    """Says the address once somebody listens there, and the first visit need not wait for what it imports.

    opened: what the browser is opened with, if it is.
    """
    _load()
    while not _answers(address.port):
        time.sleep(0.05)
    facts = {"url": address.url, "port": address.port, "token": address.token, "runs": str(Store().root)}
    print(json.dumps(facts) if as_json else address.words(), flush=True)
    if opened is not None:
        webbrowser.open(opened)
    _load_pages()  # while the browser loads Streamlit's own pages


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _farewell() -> None:
    from lab.launcher.queue import LaunchQueue

    try:
        active = LaunchQueue(Store()).active()
    except StoreError:  # whoever cannot use the queue has launched nothing
        return
    if active:
        some = ", ".join(launch.id for launch in active)
        print(f"Going on: {some}. `lab dashboard` finds them again; `lab cancel` ends one.", file=sys.stderr)
