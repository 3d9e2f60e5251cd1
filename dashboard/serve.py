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

from lab.ports import LOOPBACK, free_port, wished_port
from lab.store import Store

APP = Path(__file__).parent / "hosted.py"
FIRST_PORT = 8501
SAFE = (
    f"--server.address={LOOPBACK}",
    f"--server.allowedHosts={LOOPBACK}",
    "--server.allowedHosts=localhost",
    "--server.enableCORS=true",
    "--server.enableXsrfProtection=true",
    "--server.headless=true",
    "--server.fileWatcherType=none",
    "--browser.gatherUsageStats=false",
    "--logger.hideWelcomeMessage=true",
    "--logger.level=error",
)
"""Settings that no configuration file of the user, or of the folder, may undo; the rest is in `.streamlit`."""


def dashboard(args: Namespace) -> int:
    port = wished_port(args.port) or free_port(FIRST_PORT)
    from click import Abort
    from streamlit.web import cli  # takes a second

    threading.Thread(target=_announce, args=(port, args.json, not args.no_browser), daemon=True).start()
    with suppress(Abort):  # Ctrl-C
        cli.main(["run", str(APP), f"--server.port={port}", *SAFE], standalone_mode=False)
    _farewell()
    return 0


def _announce(port: int, as_json: bool, browser: bool) -> None:
    """Says the address as soon as somebody listens there."""
    url = f"http://{LOOPBACK}:{port}/"
    while not _answers(port):
        time.sleep(0.05)
    facts = {"url": url, "port": port, "runs": str(Store().root)}
    print(json.dumps(facts) if as_json else f"\n    {url}\n\nCtrl-C ends the dashboard.", flush=True)
    if browser:
        webbrowser.open(url)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _farewell() -> None:
    from lab.launch_queue import LaunchQueue

    active = LaunchQueue(Store()).active()
    if active:
        some = ", ".join(launch.run_id or "one that waits" for launch in active)
        print(f"Going on: {some}. `lab dashboard` finds them again; `lab cancel` ends one.", file=sys.stderr)
