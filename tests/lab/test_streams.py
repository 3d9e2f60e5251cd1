"""Outputs of every kind: of few characters, closed, full, read by nobody, narrow. What a run did stays what is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.facade import Run
from lab.store.store import Store
from tests.lab.damages import edited

LAB = f"{sys.executable} -m lab.cli"


@pytest.fixture
def shell(real_run: Run) -> Shell:
    return Shell(real_run.store)


class Shell:
    """Runs a line of the shell in which `lab` is the command, on a store with one finished run."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __call__(self, line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
        words = os.environ | {"SHARDLAB_RUNS": str(self.store.root)} | environment
        return subprocess.run(["bash", "-c", f'lab() {{ {LAB} "$@"; }}; {line}'], capture_output=True, env=words)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_of_few_characters_shows_the_run_and_its_proof(shell: Shell, encoding: str) -> None:
    done = shell("lab show latest", PYTHONIOENCODING=encoding)
    text = done.stdout.decode(encoding)
    assert done.returncode == 0 and not done.stderr
    assert text.startswith("+ equal to one process\n") and "Memory of each rank" in text and "?" not in text


def test_a_table_keeps_its_width_in_a_terminal_of_few_characters(shell: Shell) -> None:
    wide, plain = (shell("lab runs", PYTHONIOENCODING=name).stdout.decode(name) for name in ("utf-8", "cp1252"))
    assert wide.replace("✔", "+") == plain and "finished" in plain


@pytest.mark.parametrize(("command", "status"), [("runs", 0), ("show nothing", 2)])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_a_closed_output_changes_no_exit_status(shell: Shell, command: str, status: int, closed: str) -> None:
    assert shell(f"lab {command} {closed}").returncode == status


def test_what_is_written_never_lands_in_a_file_that_took_the_number_of_a_closed_output(
    shell: Shell, tmp_path: Path
) -> None:
    done = shell(f"lab export latest -o {tmp_path}/run.json >&- 2>&-")
    assert done.returncode == 0 and json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))


def test_a_reader_that_leaves_changes_no_exit_status(shell: Shell) -> None:
    for command, status in (("runs", 0), ("show nothing --json", 2)):
        done = shell(f"lab {command} | true; exit ${{PIPESTATUS[0]}}")
        assert done.returncode == status and b"Broken pipe" not in done.stderr


def test_a_full_disk_under_the_output_is_told_as_that(shell: Shell) -> None:
    done = shell("lab runs > /dev/full")
    assert done.returncode == 1
    assert done.stderr.decode() == "lab: the output cannot be written: No space left on device.\n"


def test_a_name_that_is_not_utf_8_is_printed_as_it_is(shell: Shell, tmp_path: Path) -> None:
    done = shell(f"lab export latest -o {tmp_path}/caf$'\\xe9'.json")
    assert done.returncode == 0 and done.stdout.rstrip() == os.fsencode(tmp_path) + b"/caf\xe9.json"
    assert Path(os.fsdecode(done.stdout.rstrip())).exists()


def test_forty_columns_show_how_each_run_ended_and_every_number(shell: Shell) -> None:
    listed = shell("lab runs", COLUMNS="40").stdout.decode().splitlines()
    assert listed[0].split() == ["status", "parity", "run"] and listed[1].split()[:2] == ["finished", "✔"]
    shown = shell("lab show latest", COLUMNS="40").stdout.decode()
    assert shown.startswith("✔ equal to one process\n") and "…" not in shown.partition("Memory of each rank")[2]


def test_damage_is_still_told_as_damage_where_characters_are_few(shell: Shell, tmp_path: Path) -> None:
    shutil.copytree(shell.store.root, tmp_path / "runs")
    store = Store(tmp_path / "runs")
    edited("summary.json", bubble=None)(store.folders()[0])
    done = Shell(store)("lab show latest", PYTHONIOENCODING="ascii")
    assert b"summary.json of run" in done.stdout + done.stderr
