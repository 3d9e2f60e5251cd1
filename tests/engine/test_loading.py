"""Ctrl-C while a large library is imported: the call ends at once, and the next one finds the library whole."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from signal import SIGINT

import pytest

from engine.loading import import_whole

NATIVE = """
import builtins, time
if hasattr(builtins, "_loaded_once"):
    raise ImportError("cannot load module more than once per process")  # as numpy says
builtins._loaded_once = True
time.sleep(1.0)
from slow_package import part
WHOLE = True
"""

TRAINS = """
import sys
import engine.execution.fork_server_rank
from engine.execution.one_process import _train, seeded
from engine.job.job import Job
jobs = [Job.from_options(recompute=how) for how in ("none", "selective", "full")]
before = set(sys.modules)
for job in jobs:
    _train(job, seeded(0), lambda: None)
print("late:", *sorted(set(sys.modules) - before), sep="")
print("unwanted:", *{"sympy", "pyarrow.compute"} & set(sys.modules), sep="")
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A library that takes a while to import, and can be imported only once."""
    import builtins

    (tmp_path / "slow_package").mkdir()
    (tmp_path / "slow_package" / "__init__.py").write_text(NATIVE)
    (tmp_path / "slow_package" / "part.py").write_text("import time\ntime.sleep(0.2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "slow_package"
    for name in ("slow_package", "slow_package.part"):
        sys.modules.pop(name, None)
    vars(builtins).pop("_loaded_once", None)


def interrupt_after(seconds: float, name: str) -> None:
    """Ctrl-C in the midst of an import."""
    timer = threading.Timer(seconds, os.kill, [os.getpid(), SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        import_whole(name)
    timer.join()


def test_every_interrupt_is_answered_at_once_and_the_import_goes_on_to_its_end(slow: str) -> None:
    for seconds in (0.05, 0.1, 0.25):
        interrupt_after(seconds, slow)
        assert not hasattr(sys.modules[slow], "WHOLE"), "it was answered in the midst of it"
    import_whole(slow)
    assert sys.modules[slow].WHOLE is True


def test_an_import_statement_that_follows_waits_for_the_same_import(slow: str) -> None:
    interrupt_after(0.05, slow)
    assert __import__(slow).WHOLE is True  # as an import statement does


def test_what_cannot_be_imported_is_left_to_the_import_statement(tmp_path: Path) -> None:
    import_whole("no_such_library_here", "json")
    with pytest.raises(ModuleNotFoundError, match="no_such_library_here"):
        __import__("no_such_library_here")


def test_in_another_thread_which_no_interrupt_reaches_it_starts_none(slow: str) -> None:
    started: list[int] = []

    def other() -> None:
        import_whole(slow)
        started.append(threading.active_count())

    before = threading.active_count()
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert started == [before + 1] and slow not in sys.modules


CALLS = """
import os, signal, sys, threading, time
import lab

def simulate():
    return lab.simulate(dp=2, layers=2, hidden=32).status

def plan():
    return len(lab.plan(model="example-12-layer", gpus=4, refine=1).ranked) > 0

def half(name, last):
    return name in sys.modules and not hasattr(sys.modules[name], last)  # an attribute that comes late

def interrupt(name, last, answered):
    while not half(name, last) and not answered.is_set():
        time.sleep(0.002)
    if not answered.is_set():
        os.kill(os.getpid(), signal.SIGINT)

def interrupted(call, *when):
    answered = threading.Event()
    try:
        threading.Thread(target=interrupt, args=(*when, answered), daemon=True).start()
        call()
        answered.set()
        return False
    except KeyboardInterrupt:
        return True

found = [interrupted(call, *when) for call, when in [
    (simulate, ("numpy", "matrix")), (plan, ("pyarrow", "show_versions")), (simulate, ("torch", "compile")),
    (plan, ("torch", "compile")), (simulate, ("torch", "compile"))]]
print(found[2], found.count(True), simulate(), plan(), half("torch", "compile"))
"""


def test_interrupts_at_many_moments_of_first_calls_leave_the_later_ones_whole(tmp_path: Path) -> None:
    surroundings = os.environ | {
        "SHARDLAB_RUNS": str(tmp_path / "none")
    }  # where no templates are kept, torch is needed
    command = [sys.executable, "-c", CALLS]
    done = subprocess.run(command, cwd=tmp_path, env=surroundings, text=True, capture_output=True, timeout=120)
    in_torch, answered, *later = done.stdout.split()
    assert (done.returncode, in_torch, later) == (0, "True", ["simulated", "True", "False"]), done.stderr
    assert int(answered) >= 2, "a machine in a hurry may be done before the last of them"


def test_all_that_training_needs_is_loaded_before_ranks_are_forked_and_sympy_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", TRAINS], capture_output=True, text=True, check=True)
    late, unwanted = done.stdout.splitlines()
    assert (late, unwanted) == ("late:", "unwanted:")
