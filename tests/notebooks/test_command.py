"""`lab notebooks` serves this machine alone, gives kernels the right `lab` and store, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient

import lab

ROOT = Path(lab.__file__).parent.parent
COMMAND = [sys.executable, "-m", "lab.cli", "notebooks"]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SHARDLAB_RUNS"}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.Popen(
        [*COMMAND, *options], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


class Served:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = start(folder, "--no-browser", "--json")
        assert self.process.stdout is not None
        self.facts: dict[str, Any] = json.loads(self.process.stdout.readline())

    def ask(self, path: str, token: str | None = None, body: dict[str, str] | None = None) -> Any:
        headers = {"Authorization": f"token {token}"} if token else {}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.facts['port']}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def kernel(self) -> BlockingKernelClient:
        found = self.ask("/api/kernels", self.facts["token"], {"name": "python3"})
        file = Path(self.facts["folder"], ".jupyter", "runtime", f"kernel-{found['id']}.json")
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels(hb=False)  # a heart that beats late on a busy machine is not dead
        client.wait_for_ready(timeout=60)
        return client


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("learner"))
    yield server
    server.process.kill()
    server.process.communicate()


def test_it_listens_on_loopback_alone_and_wants_its_token(served: Served) -> None:
    socket.create_connection(("127.0.0.1", served.facts["port"]), timeout=5).close()
    with pytest.raises(OSError):  # another address of this machine, which a server of all addresses answers
        socket.create_connection(("127.0.0.2", served.facts["port"]), timeout=5).close()
    with pytest.raises(HTTPError, match="403"):
        served.ask("/api/contents")
    names = [one["name"] for one in served.ask("/api/contents", served.facts["token"])["content"]]
    assert "index.ipynb" in names and ".jupyter" not in names
    assert served.facts["url"].endswith(f"/lab/tree/index.ipynb?token={served.facts['token']}")


def test_a_second_one_finds_another_port_and_a_port_asked_for_is_not_replaced(served: Served, tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        process = start(tmp_path, "--port", str(port), "--no-browser")
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert (
        err == f"lab: port={port} cannot be used (address already in use): leave --port out, and a free one is found.\n"
    )
    assert not list(tmp_path.iterdir()), "refused before anything is copied"
    second = Served(tmp_path)
    assert second.facts["port"] != served.facts["port"]
    second.process.send_signal(signal.SIGTERM)
    second.process.communicate(timeout=30)
    assert second.process.returncode == 0


def test_a_kernel_finds_this_lab_and_the_store_of_where_the_command_was_started(served: Served) -> None:
    kernel, said = served.kernel(), []
    code = "import lab, os, sys; print(sys.executable, lab.__file__, os.environ['SHARDLAB_RUNS'], sep='\\n')"
    kernel.execute_interactive(code, timeout=60, output_hook=lambda m: said.append(m["content"].get("text", "")))
    assert "".join(said).split("\n")[:-1] == [sys.executable, lab.__file__, str(served.folder / "runs")]
    kernel.stop_channels()


def test_an_interrupt_ends_it_with_its_kernels_and_the_ranks_of_a_run_in_the_middle(served: Served) -> None:
    kernel = served.kernel()
    kernel.execute("import lab; lab.run(dp=2, steps=100_000)")
    process = psutil.Process(served.process.pid)
    deadline = time.monotonic() + 90
    while not list(served.folder.glob("runs/*/run.json")) or len(process.children(recursive=True)) < 5:
        assert time.monotonic() < deadline, "the run never began"
        time.sleep(0.1)
    family = process.children(recursive=True)
    served.process.send_signal(signal.SIGINT)
    _, err = served.process.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    assert (served.process.returncode, err) == (0, "")
    left = {path.name for path in Path(served.facts["folder"], ".jupyter", "runtime").iterdir()}
    assert not [name for name in left if name.startswith(("jpserver", "kernel"))], "files with tokens and keys"
    kernel.stop_channels()
