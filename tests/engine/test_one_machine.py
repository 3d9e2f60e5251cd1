"""A run on one machine needs no network: its ranks meet on the loopback interface, whatever anybody says of others."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from engine.processes.launch import RunCancelled
from tests.allowed import not_allowed
from tests.engine.launching import Sabotage, members, run

pytestmark = pytest.mark.usefixtures("importable_targets")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("GLOO_SOCKET_IFNAME", "nonsense"), ("GLOO_DEVICE_TRANSPORT", "NONSENSE"), ("TP_SOCKET_IFNAME", "nonsense")],
)
def test_a_variable_that_was_set_for_some_cluster_does_not_keep_ranks_from_meeting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert [event["sum"] for _, event in run(tmp_path, members(2, "sums"))] == [2.0, 2.0]


def test_ranks_listen_and_connect_on_the_loopback_interface_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A VPN or a Wi-Fi may be what the machine's name stands for, and take its address along when it goes."""
    others = [name for name, stats in psutil.net_if_stats().items() if stats.isup and "loopback" not in stats.flags]
    if others:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", others[0])
    cancel, found = threading.Event(), set[str]()

    def look(pids: list[int], supervisor: int) -> None:
        for pid in pids:
            sockets = psutil.Process(pid).net_connections("tcp")
            assert sockets
            found.update(end.ip for socket in sockets for end in (socket.laddr, socket.raddr) if end)
        cancel.set()

    with pytest.raises(RunCancelled):
        run(tmp_path, members(3, "troubled"), Sabotage(3, look), cancel=cancel)
    assert found and all(ip_address(ip).is_loopback for ip in found), found


@contextmanager
def network(setup: str) -> Iterator[int]:
    """A process in a network of its own, with nothing but its loopback interface, made ready by `setup`."""
    command = ["unshare", "--net", "sh", "-c", f"ip link set lo up && {setup} && echo ready && exec sleep 60"]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
            assert holder.stdout is not None
            try:
                if holder.stdout.readline() != b"ready\n":
                    not_allowed("make a network namespace")
                yield holder.pid
            finally:
                holder.kill()
    except FileNotFoundError:
        not_allowed("make a network namespace")


@pytest.mark.parametrize("setup", ["true", "ip -4 addr flush dev lo", "ip -6 addr flush dev lo"])
def test_ranks_meet_without_a_network_on_either_loopback_address_under_any_name(tmp_path: Path, setup: str) -> None:
    with network(setup) as pid:
        events = run(tmp_path, members(2, "sums_elsewhere", pid=pid, hostname="vanished.example"))
    assert [event["sum"] for _, event in events] == [2.0, 2.0]
