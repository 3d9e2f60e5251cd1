"""Clients of the launcher that are scripts: killed, interrupted, forked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from tests.engine.launching import HERE, left

pytestmark = [pytest.mark.timed, pytest.mark.usefixtures("importable_targets")]


class Script:
    """A learner's script without a main guard, running in a process group of its own as in a terminal."""

    def __init__(self, tmp_path: Path, body: str) -> None:
        source = f"""
            import json, os, signal, sys, threading, time
            from pathlib import Path
            sys.path.append({str(HERE)!r})
            from engine.processes.launch import Member, launch
            here = Path({str(tmp_path)!r})

            def tell(name, event):
                print(json.dumps(event), flush=True)

            def go(size, function, **payload):
                everyone = [Member(f"rank {{i}}", f"fake_ranks:{{function}}", payload) for i in range(size)]
                launch(everyone, log_path=here / "log.txt", run_json=here / "run.json", on_event=tell)
        """
        self.run_json = tmp_path / "run.json"
        self.run_json.write_text(json.dumps({"status": "running", "job": {"dp": 2}}))
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(source) + textwrap.dedent(body))
        self.process = subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def pids(self, count: int) -> list[int]:
        """Of the members that have said they are up, their supervisor and the fork server."""
        assert self.process.stdout is not None
        found = [json.loads(self.process.stdout.readline()) for _ in range(count)]
        supervisor = found[0]["supervisor"]
        return [event["pid"] for event in found] + [supervisor, psutil.Process(supervisor).ppid()]

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def test_a_script_without_main_guard_runs_once_and_leaves_nobody(tmp_path: Path) -> None:
    script = Script(tmp_path, "print('once')\ngo(2, 'sums')\nassert 'torch' not in sys.modules\n")
    code, out, err = script.end()
    assert (code, err) == (0, "")
    assert out.splitlines() == ["once", '{"sum": 2.0}', '{"sum": 2.0}']
    assert json.loads(script.run_json.read_text())["status"] == "running"


def test_a_killed_client_leaves_nobody_and_the_run_says_so(tmp_path: Path) -> None:
    script = Script(tmp_path, "go(4, 'troubled')\n")
    pids = script.pids(4)
    script.process.kill()
    assert not left(pids)
    script.end()
    record = json.loads(script.run_json.read_text())
    assert record == {
        "status": "killed",
        "message": "the program that started this run went away",
        "job": {"dp": 2},
    }


def test_ctrl_c_reaches_the_script_alone_and_leaves_nobody(tmp_path: Path) -> None:
    script = Script(tmp_path, "go(4, 'troubled')\n")
    pids = script.pids(4)
    os.killpg(script.process.pid, signal.SIGINT)
    code, _, err = script.end()
    assert code == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not left(pids)
    assert json.loads(script.run_json.read_text())["status"] == "running"  # the client's to write


def test_a_forked_child_of_the_client_neither_disturbs_nor_keeps_a_run_alive(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        from multiprocessing import get_context
        def strike():
            go(2, "sums")
            time.sleep(1000)
        children = []
        def tell(name, event):
            print(json.dumps(event), flush=True)
            if len(children) == 0:
                children.append(get_context("fork").Process(target=strike))
                children[0].start()
        go(2, "troubled")
        """,
    )
    assert script.process.stdout is not None
    events = [json.loads(script.process.stdout.readline()) for _ in range(4)]
    assert sum(event == {"sum": 2.0} for event in events) == 2
    pids = [event["pid"] for event in events if "pid" in event]
    (child,) = (p for p in psutil.Process(script.process.pid).children() if "fork_server" not in str(p.cmdline()))
    script.process.kill()
    assert not left(pids)
    assert child.is_running()
    child.kill()
    script.end()


def test_a_run_in_a_daemon_thread_ends_with_the_script(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        up = threading.Semaphore(0)
        def tell(name, event):
            print(json.dumps(event), flush=True)
            up.release()
        threading.Thread(target=go, args=(2, "troubled"), daemon=True).start()
        up.acquire(), up.acquire(), time.sleep(0.5)
        """,
    )
    pids = script.pids(2)
    script.end()
    assert not left(pids)
    assert json.loads(script.run_json.read_text())["status"] == "killed"
