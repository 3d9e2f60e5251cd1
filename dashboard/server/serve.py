"""`lab dashboard`: the dashboard for this machine alone, in this very process, so that one Ctrl-C ends it.

Runs it has launched are carried out by a process of their own. They go on, and the next dashboard finds them again.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import webbrowser
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from lab.cli.ports import LOOPBACK, free_port, wished_port
from lab.store.store import Store, StoreError
from lab.store.trash import empty as empty_trash

APP = Path(__file__).parents[1] / "asgi.py"
FIRST_PORT = 8501
SAFE = (
    f"--server.address={LOOPBACK}",
    f"--server.allowedHosts={LOOPBACK}",
    "--server.allowedHosts=localhost",
    "--server.enableCORS=true",
    f"--server.corsAllowedOrigins=http://{LOOPBACK}",
    "--server.enableXsrfProtection=true",
    "--server.enableAgentApi=false",
    "--server.headless=true",
    "--server.fileWatcherType=none",
    "--browser.gatherUsageStats=false",
    "--client.showErrorDetails=none",
    "--logger.hideWelcomeMessage=true",
    "--logger.level=error",
)
"""Settings that no configuration file of the user, or of the folder, may undo; the rest is in `.streamlit`."""


def dashboard(args: Namespace) -> int:
    port = wished_port(args.port) or free_port(FIRST_PORT)
    empty_trash(Store())
    from click import Abort
    from streamlit.web import cli  # takes a second

    ask_nobody()
    threading.Thread(target=_announce, args=(port, args.json, not args.no_browser), daemon=True).start()
    with suppress(Abort):  # Ctrl-C
        cli.main(["run", str(APP), f"--server.port={port}", *SAFE], standalone_mode=False)
    _farewell()
    return 0


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


def _announce(port: int, as_json: bool, browser: bool) -> None:
    """Says the address once somebody listens there, and the first visit need not wait for what it imports."""
    _load()
    url = f"http://{LOOPBACK}:{port}/"
    while not _answers(port):
        time.sleep(0.05)
    facts = {"url": url, "port": port, "runs": str(Store().root)}
    print(json.dumps(facts) if as_json else f"\n    {url}\n\nCtrl-C ends the dashboard.", flush=True)
    if browser:
        webbrowser.open(url)
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
