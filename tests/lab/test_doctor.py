"""What the doctor says of processes that meet: as runs do, and what keeps them from it only when it has seen that."""

from __future__ import annotations

import ctypes
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.processes.launch import Failure, RunFailed
from lab.cli.commands import doctor
from tests.allowed import not_allowed

NEW_NETWORK = 0x40000000  # CLONE_NEWNET


def test_the_doctor_meets_in_any_folder_and_leaves_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an address `file://...`, a `?` or a `#` ends the path."""
    folder = tmp_path / "what? number #1 of 100%"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert doctor.processes().ok
    assert list(tmp_path.rglob("*")) == [folder]


@pytest.mark.parametrize("variable", ["GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT"])
def test_the_doctor_finds_well_what_a_run_finds_well(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "nonsense")
    assert doctor.processes().ok


def test_no_firewall_is_blamed_where_a_connection_inside_the_machine_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RunFailed(Failure("rank 0", "", "made no progress for 2.0 s and waited for nobody", "", ()))

    monkeypatch.setattr("engine.processes.launch.launch", fails)
    check = doctor.processes()
    assert not check.ok and "made no progress" in check.found
    assert "no firewall is in the way" in check.advice


def test_where_no_connection_inside_the_machine_works_the_doctor_says_why() -> None:
    found: list[str] = []

    def look() -> None:
        """In a network of this thread alone, whose loopback interface is down."""
        if ctypes.CDLL(None).unshare(NEW_NETWORK) == 0:
            found.append(doctor.loopback_trouble())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    if not found:
        not_allowed("make a network namespace")
    assert found[0].startswith("127.0.0.1: Network is unreachable; ::1: ")
    assert doctor.loopback_trouble() == ""
