"""What a machine gives: the smaller of what it has and what its control groups allow, which are pretended here."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from engine import machine

GB = 10**9
PLENTY = 10**18


class Machine:
    """Control groups as files: `process` tells of which groups a process is a member, `mounts` holds their files."""

    def __init__(self, folder: Path) -> None:
        self.process, self.mounts = folder / "proc", folder / "sys"
        self.process.mkdir()
        self._members: list[str] = []
        self._infos: list[str] = []

    def version_2(self, member: str = "/", root: str = "/") -> None:
        self._add(f"0::{member}", f"31 23 0:28 {root} {self.mounts} rw - cgroup2 cgroup2 rw")

    def version_1(self, controllers: str, member: str = "/", root: str = "/") -> None:
        place = self.mounts / controllers
        self._add(f"4:{controllers}:{member}", f"32 31 0:29 {root} {place} rw - cgroup cgroup rw,{controllers}")

    def _add(self, member: str, info: str) -> None:
        self._members.append(member)
        self._infos.append(info)
        (self.process / "cgroup").write_text("\n".join(self._members) + "\n")
        (self.process / "mountinfo").write_text("\n".join(self._infos) + "\n")

    def says(self, group: str, **files: object) -> None:
        """Puts files in a group; `__` stands for a dot."""
        folder = self.mounts / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            (folder / name.replace("__", ".")).write_text(f"{value}\n")


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    return Machine(tmp_path)


def test_without_control_groups_all_is_the_machines(pretended: Machine) -> None:
    assert machine.cores(pretended.process) == 8
    assert machine.total_memory(pretended.process) == psutil.virtual_memory().total


def test_a_quota_of_version_2_limits_the_cores(pretended: Machine) -> None:
    pretended.version_2()
    pretended.says("", cpu__max="250000 100000")
    assert machine.cores(pretended.process) == 2
    pretended.says("", cpu__max="50000 100000")
    assert machine.cores(pretended.process) == 1
    pretended.says("", cpu__max="max 100000")
    assert machine.cores(pretended.process) == 8


def test_a_quota_of_version_1_limits_the_cores(pretended: Machine) -> None:
    pretended.version_1("cpu,cpuacct", member="/docker/abc", root="/docker/abc")
    pretended.says("cpu,cpuacct", cpu__cfs_quota_us=300_000, cpu__cfs_period_us=100_000)
    assert machine.cores(pretended.process) == 3
    pretended.says("cpu,cpuacct", cpu__cfs_quota_us=-1)
    assert machine.cores(pretended.process) == 8


def test_the_affinity_mask_counts_where_it_is_the_smaller(pretended: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended.version_2()
    pretended.says("", cpu__max="600000 100000")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert machine.cores(pretended.process) == 1


def test_a_group_above_may_be_the_tighter_one(pretended: Machine) -> None:
    pretended.version_2(member="/user/session")
    pretended.says("user/session", cpu__max="max 100000", memory__max="max", memory__current=1)
    pretended.says("user", cpu__max="400000 100000", memory__max=1 * GB, memory__current=GB // 4)
    assert machine.cores(pretended.process) == 4
    assert machine.total_memory(pretended.process) == 1 * GB
    assert machine.free_memory(pretended.process) == GB - GB // 4


def test_a_container_of_700_megabytes_has_no_more_than_these(pretended: Machine) -> None:
    pretended.version_2()
    stat = "anon 100000000\nactive_file 20000000\ninactive_file 30000000\nunevictable 7"
    pretended.says("", memory__max=700 * 10**6, memory__current=200 * 10**6, memory__stat=stat)
    assert machine.total_memory(pretended.process) == 700 * 10**6
    assert machine.free_memory(pretended.process) == (700 - 200 + 20 + 30) * 10**6


def test_version_1_limits_memory_too_and_has_a_number_for_no_limit(pretended: Machine) -> None:
    pretended.version_1("memory", member="/docker/abc", root="/docker/abc")
    used = {"memory__usage_in_bytes": 2 * 10**8, "memory__stat": "total_active_file 1000\ntotal_inactive_file 2000"}
    pretended.says("memory", memory__limit_in_bytes=7 * 10**8, **used)
    assert machine.free_memory(pretended.process) == 5 * 10**8 + 3000
    pretended.says("memory", memory__limit_in_bytes=9223372036854771712)
    assert machine.total_memory(pretended.process) == psutil.virtual_memory().total


def test_a_group_that_is_over_its_limit_has_nothing_left(pretended: Machine) -> None:
    pretended.version_2()
    pretended.says("", memory__max=10**8, memory__current=2 * 10**8)
    assert machine.free_memory(pretended.process) == 0


def test_memory_is_no_more_than_the_machine_has(pretended: Machine) -> None:
    pretended.version_2()
    pretended.says("", memory__max=PLENTY, memory__current=0)
    assert machine.free_memory(pretended.process) <= psutil.virtual_memory().total


def test_a_job_that_the_container_has_no_room_for_is_refused(
    pretended: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.job.errors import JobRefused
    from engine.job.job import Job
    from lab.running.execute import checked

    pretended.version_2()
    pretended.says("", memory__max=7 * 10**8, memory__current=6 * 10**8)
    monkeypatch.setattr("engine.machine.PROCESS", pretended.process)
    with pytest.raises(JobRefused, match=r"needs about .* and this machine has 0\.1 GB free"):
        checked(Job.from_options(dp=8, hidden=256, batch=32, microbatches=4))
