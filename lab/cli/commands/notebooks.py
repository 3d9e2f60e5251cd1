"""`lab notebooks`: JupyterLab on a working copy of the notebooks, for this machine alone.

The server runs in this very process, so that one Ctrl-C ends it and its kernels. It listens on loopback, wants a token,
and asks nobody for news, updates or extensions. Of the user's own Jupyter it reads nothing: settings are those in the
copy.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine import HOME
from engine.whole_file import write_whole
from lab.cli.ports import LOOPBACK, wished_port
from lab.learning.notebook_copies import FIRST, HIDDEN, update
from lab.store.store import default_root

_PATIENCE = 5.0  # seconds for interrupted cells to end their processes and answer
_EXTENSIONS = {"jupyterlab": True, "jupyter_lsp": True, "jupyter_server_terminals": True, "notebook_shim": True}
"""What JupyterLab needs on the server; that is enabled in files which are not read here."""
_NO_NEWS = '{"fetchNews": "false", "checkForUpdates": false}\n'  # or JupyterLab asks to be allowed to fetch some


def notebooks(args: Namespace) -> int:
    port = wished_port(args.port)
    folder = Path(args.to).absolute()
    copied = update(folder, args.fresh)
    ours = _environment(folder)
    ignore_settings_of_others(Path(ours["JUPYTER_CONFIG_DIR"]))
    os.environ.update(ours)
    _write_settings(folder)
    from jupyterlab.labapp import LabApp  # after the environment, which it reads

    token = secrets.token_urlsafe(24)
    server = LabApp.initialize_server(_arguments(folder, token, port, not args.no_browser))
    url = f"http://{LOOPBACK}:{server.port}/lab/tree/{FIRST}?token={token}"
    if args.json:
        facts = {"url": url, "port": server.port, "token": token, "folder": str(folder), **asdict(copied)}
        words = json.dumps(facts)
    else:
        words = f"{folder}: {copied.words()}.\n\n    {url}\n\nCtrl-C ends JupyterLab and what runs in it."
    server.io_loop.add_callback(print, words, flush=True)  # after the one that makes it listen
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # JupyterLab's own ask back, or leave kernels behind
        signal.signal(number, lambda *_: _end(server))
    server.start()  # returns when its kernels are shut down
    return 0


def ignore_settings_of_others(config: Path) -> None:
    """Leaves Jupyter no settings but those in the folder `config`. To be called before anything of Jupyter is imported.

    Those of the user, of the environment and of the machine could give the server another address, a certificate, a
    gateway for its kernels, or doors for pages of other hosts: the printed address would be dead, or not alone.
    """
    from jupyter_core import paths

    for name in [*os.environ]:
        if name.startswith(
            ("JUPYTER", "JPY_", "JLAB_", "JP_LSP_")
        ):  # JUPYTER_PATH too: kernels of another installation
            del os.environ[name]
    assert hasattr(paths, "jupyter_config_path")
    paths.jupyter_config_path = lambda: [str(config)]


def _end(server: Any) -> None:
    """Ends the server from a signal handler; a second signal ends it without waiting for busy kernels."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: server.stop(from_signal=True))
    server.io_loop.add_callback_from_signal(_end_when_idle, server)


async def _end_when_idle(server: Any) -> None:
    """Interrupts what runs and lets it answer first: a kernel shut down in the middle of a cell prints a traceback."""
    kernels = server.kernel_manager
    busy = [kernels.get_kernel(kernel) for kernel in kernels.list_kernel_ids()]
    busy = [kernel for kernel in busy if kernel.execution_state == "busy"]
    for kernel in busy:
        await kernel.interrupt_kernel()
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and any(kernel.execution_state == "busy" for kernel in busy):
        await asyncio.sleep(0.05)
    server.stop()


def _environment(folder: Path) -> dict[str, str]:
    """What the server and its kernels find in their environment.

    Runs go to the store of whoever started the command, not to one beside the notebooks. `lab` is this very package.
    """
    hidden = folder / HIDDEN
    package = str(HOME.parent)
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {
        "SHARDLAB_RUNS": str(default_root()),
        "PYTHONPATH": os.pathsep.join([package, *others]),
        "JUPYTER_CONFIG_DIR": str(hidden / "config"),
        "JUPYTER_DATA_DIR": str(hidden / "data"),
        "JUPYTER_RUNTIME_DIR": str(hidden / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(hidden / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(hidden / "workspaces"),
        "IPYTHONDIR": str(hidden / "ipython"),
    }


def _write_settings(folder: Path) -> None:
    path = folder / HIDDEN / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, _NO_NEWS)


def _arguments(folder: Path, token: str, port: int | None, browser: bool) -> list[str]:
    chosen = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"] if port else []
    return [
        *chosen,
        f"--ServerApp.ip={LOOPBACK}",
        "--ServerApp.sock=",
        "--ServerApp.base_url=/",
        "--ServerApp.certfile=",
        "--ServerApp.keyfile=",
        "--ServerApp.allow_origin=",
        "--ServerApp.allow_origin_pat=",
        "--ServerApp.allow_remote_access=False",
        f"--ServerApp.jpserver_extensions={_EXTENSIONS}",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
        f"--ServerApp.open_browser={browser}",
        "--ServerApp.allow_root=True",  # as in a container; nobody but this machine can reach it
        "--Application.log_level=ERROR",
        f"--LabApp.default_url=/lab/tree/{FIRST}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
        "--KernelManager.transport_encryption=auto",  # what kernels say on loopback is for this server alone
    ]
