"""Answers that raise, never return, exit, crash, eat memory or are no functions: told in words, and nothing is left."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import psutil
import pytest

import lab

NAME = "partition_layers"  # (costs, stages), one process


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test the only child is the fork server, and that has none."""
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path))
    yield
    deadline = time.monotonic() + 5
    while (left := _strangers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _strangers() -> list[str]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and not (
                "engine.processes.fork_server.server" in line and child.ppid() == os.getpid()
            ):
                found.append(f"{child.pid} {line}")
        except psutil.NoSuchProcess:
            pass
    return found


def hostile(kind: str) -> Callable[..., Any]:
    def raises(costs: Any, stages: Any) -> Any:
        return inner(costs)

    def inner(costs: Any) -> Any:
        return costs[99]

    def endless(costs: Any, stages: Any) -> Any:
        while True:
            pass

    def sleeps(costs: Any, stages: Any) -> Any:
        time.sleep(1000)

    def starts_others(costs: Any, stages: Any) -> Any:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        time.sleep(1000)

    def exits(costs: Any, stages: Any) -> Any:
        sys.exit(3)

    def quits(costs: Any, stages: Any) -> Any:
        os._exit(0)

    def crashes(costs: Any, stages: Any) -> Any:
        ctypes.string_at(0)

    def eats(costs: Any, stages: Any) -> Any:
        return [0] * 10**10

    def eats_tensors(costs: Any, stages: Any) -> Any:
        import torch

        return torch.zeros(10**10)

    def recurses(costs: Any, stages: Any) -> Any:
        return recurses(costs, stages)

    def prints(costs: Any, stages: Any) -> Any:
        for number in range(200_000):
            print("line", number)

    def catches_all(costs: Any, stages: Any) -> Any:
        raise KeyboardInterrupt

    every = (
        raises,
        endless,
        sleeps,
        starts_others,
        exits,
        quits,
        crashes,
        eats,
        eats_tensors,
        recurses,
        prints,
        catches_all,
    )
    return {f.__name__: f for f in every}[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("raises", r"raised IndexError: list index out of range, with costs=\[1, 1, 1, 1\] and stages=2"),
        ("endless", r"did not end within 1 s, and was stopped\. It was called with costs="),
        ("sleeps", "did not end within 1 s"),
        ("starts_others", "did not end within 1 s"),
        ("exits", r"called exit\(3\), .*return a value instead"),
        ("quits", "ended its process: it exited before its work was done, with status 0"),
        ("crashes", "ended its process: it was killed by signal SIGSEGV"),
        ("eats", "wanted more than 1024 MiB of memory"),
        ("eats_tensors", "wanted more than 1024 MiB of memory"),
        ("recurses", "raised RecursionError"),
        ("prints", "must return a list of lists of layer numbers, .*returned None"),
        ("catches_all", "raised KeyboardInterrupt"),
    ],
)
def test_whatever_an_answer_does_is_told_and_this_process_goes_on(kind: str, words: str) -> None:
    verdict = lab.check(NAME, hostile(kind), seconds=20 if kind not in ("endless", "sleeps", "starts_others") else 1)
    assert not verdict.passed
    assert re.search(words, verdict.words), verdict.words


def test_the_traceback_is_the_learners_lines_with_their_code() -> None:
    lines = lab.check(NAME, hostile("raises")).details["traceback"].splitlines()
    assert [re.sub(r"line \d+", "line N", line) for line in lines] == [
        "line N of test_exercises_apart.py, in raises:  return inner(costs)",
        "line N of test_exercises_apart.py, in inner:  return costs[99]",
    ]


def test_much_printing_is_cut_and_counted() -> None:
    verdict = lab.check(NAME, hostile("prints"))
    assert verdict.details["output"].startswith("line 0\nline 1\n")
    assert re.search(r"… and [\d,]+ characters more$", verdict.details["output"])
    assert len(verdict.details["output"]) < 1000


def test_one_rank_that_raises_is_told_and_not_its_peers() -> None:
    def answer(tensor: Any, rank: int, n: int, exchange: Any) -> Any:
        if rank == 1:
            raise ZeroDivisionError("mine")
        return exchange(tensor, (rank + 1) % n, (rank - 1) % n)

    assert "raised ZeroDivisionError: mine, with rank 1 of 2" in lab.check("ring_all_reduce", answer).words


def test_one_rank_that_dies_is_named() -> None:
    def answer(tensor: Any, rank: int, n: int, exchange: Any) -> Any:
        if rank == 1:
            os._exit(7)
        return exchange(tensor, (rank + 1) % n, (rank - 1) % n)

    assert (
        "Your function on rank 1 ended its process: it exited with status 7"
        in lab.check("ring_all_reduce", answer).words
    )


def test_ranks_in_a_deadlock_are_told_who_waits_where() -> None:
    def answer(tensor: Any, rank: int, n: int, exchange: Any) -> Any:
        if n == 3:  # each waits for the next rank, which sends to its own next one
            return exchange(tensor, (rank + 1) % n, (rank + 1) % n)
        pieces = tensor.clone().flatten().tensor_split(2)
        pieces[1 - rank].add_(exchange(pieces[rank], 1 - rank, 1 - rank))
        pieces[rank].copy_(exchange(pieces[1 - rank], 1 - rank, 1 - rank))
        return pieces[0]._base.view(tensor.shape)

    words = lab.check("ring_all_reduce", answer).words
    assert re.search(
        r"wait for one another for ever: rank \d waits in 'exchange 0: to rank \d, from rank \d'", words
    ), words


@pytest.mark.parametrize("answer", [None, 3, "text", [1, 2], {}])
def test_what_is_no_function_is_told_with_what_is_wanted(answer: Any) -> None:
    words = lab.check(NAME, answer).words
    assert words.startswith("The answer must be a function partition_layers(costs, stages); this is")


def test_other_parameters_are_told_with_those_it_is_called_with() -> None:
    def mine(costs: Any) -> Any:
        return costs

    words = lab.check(NAME, mine).words
    assert words.startswith("It is called as partition_layers(costs, stages), and yours is mine(costs")


def test_a_function_that_cannot_be_copied_is_told() -> None:
    lock = threading.Lock()

    def answer(costs: Any, stages: Any) -> Any:
        return lock

    assert "uses something that cannot be copied to another process: " in lab.check(NAME, answer).words


def test_callable_objects_and_partials_are_answers_too() -> None:
    from functools import partial

    from lab.learning.exercises.tasks.partition_layers import solution

    def answer(extra: int, costs: Any, stages: Any) -> Any:
        return solution(costs, stages)

    assert lab.check(NAME, partial(answer, 0)).passed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ring_allreduce", "did you mean 'ring_all_reduce'"),
        ("zzz", "they are column_parallel_linear, "),
        (7, "called 7"),
    ],
)
def test_an_exercise_that_does_not_exist_is_told_with_the_nearest(name: Any, words: str) -> None:
    verdict = lab.check(name, None)
    assert not verdict.passed and words in verdict.words


def _run_cells(*cells: str) -> list[Any]:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(
        book, timeout=120, resources={"metadata": {"path": str(Path(__file__).parents[2])}}
    ).execute()
    return [cell.outputs for cell in book.cells]


def test_functions_of_notebook_cells_are_checked_and_the_kernel_lives() -> None:
    outputs = _run_cells(
        "import lab, os\ndef helper(costs):\n    return costs[99]",
        "def partition_layers(costs, stages):\n    return helper(costs)\n"
        "lab.check('partition_layers', partition_layers)",
        "def partition_layers(costs, stages):\n    os._exit(1)\nlab.check('partition_layers', partition_layers)",
        "'the kernel lives'",
    )
    shown = outputs[1][-1].data["text/plain"]
    assert "raised IndexError" in shown
    assert "line 2 of your cell, in partition_layers:  return helper(costs)" in shown
    assert "line 3 of your cell, in helper:  return costs[99]" in shown
    assert 'role="status"' in outputs[1][-1].data["text/html"]
    assert "exited with status 1" in outputs[2][-1].data["text/plain"]
    assert outputs[3][-1].data["text/plain"] == "'the kernel lives'"


def test_what_an_answer_starts_in_a_session_of_its_own_ends_with_it() -> None:
    def answer(costs: Any, stages: Any) -> Any:
        import subprocess

        return [[subprocess.Popen(["sleep", "600"], start_new_session=True).pid]]

    verdict = lab.check(NAME, answer)
    assert "returned 1 stages" in verdict.words
    started = int(re.findall(r"\[\[(\d+)\]\]", verdict.words)[0])
    deadline = time.monotonic() + 5
    while psutil.pid_exists(started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(started)


def test_an_answer_that_breaks_python_itself_is_told_in_words() -> None:
    def answer(costs: Any, stages: Any) -> Any:
        import builtins

        builtins.len = lambda _: 2
        return [[0]]

    verdict = lab.check(NAME, answer)
    assert not verdict.passed
    assert verdict.words.startswith("Your function ended its process: it ")


@pytest.mark.parametrize("seconds", [None, "x", 0, -1, float("nan"), float("inf")])
def test_a_time_limit_that_is_none_is_told_and_nothing_runs(seconds: Any) -> None:
    verdict = lab.check(NAME, lambda costs, stages: [], seconds=seconds)
    assert not verdict.passed and "use a number above 0" in verdict.words
