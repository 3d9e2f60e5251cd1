"""What this machine gives to a process: cores and memory, no more than the control groups of a container allow.

Both versions of control groups are read, from the process's own group up to the root: the tightest one holds.
Source: the kernel's Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import floor
from pathlib import Path, PurePosixPath

PROCESS = Path("/proc/self")
"""Where Linux tells of which groups this process is a member, and where the groups are mounted; absent elsewhere."""


@dataclass(frozen=True)
class _Names:
    """What the files of one version of control groups are called; cpu quotas are read by `_quota`."""

    limit: str
    used: str
    reclaimable: tuple[str, ...]


_MEMORY = {
    1: _Names("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
    2: _Names("memory.max", "memory.current", ("active_file", "inactive_file")),
}


def cores(process: Path | None = None) -> int:
    """Cores that this process may keep busy all the time: those of its affinity mask, or fewer under a quota.

    Of a quota the whole cores count: under one of 1.5 a second process would be stopped half of the time.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [_quota(version, group) for version, group in _groups("cpu", process or PROCESS)]
    return max(1, min([count, *(floor(quota) for quota in quotas if quota is not None)]))


def total_memory(process: Path | None = None) -> int:
    """Bytes that this process and its children may use at most, with whatever else is in their control group."""
    import psutil

    limits = [_number(group / _MEMORY[version].limit) for version, group in _groups("memory", process or PROCESS)]
    return min([int(psutil.virtual_memory().total), *(limit for limit in limits if limit is not None)])


def free_memory(process: Path | None = None) -> int:
    """Bytes that can still be taken before the kernel ends somebody: of the machine, or of a group that has fewer.

    What files occupy counts as free, as in the kernel's own MemAvailable: it is given up when it is needed.
    """
    import psutil

    rooms = [_room(_MEMORY[version], group) for version, group in _groups("memory", process or PROCESS)]
    return max(0, min([int(psutil.virtual_memory().available), *(room for room in rooms if room is not None)]))


def _room(names: _Names, group: Path) -> int | None:
    limit, used = _number(group / names.limit), _number(group / names.used)
    if limit is None or used is None:
        return None
    stats = dict(line.split(maxsplit=1) for line in _text(group / "memory.stat").splitlines() if " " in line)
    return limit - used + sum(int(stats.get(name, 0)) for name in names.reclaimable)


def _quota(version: int, group: Path) -> float | None:
    """Cores' worth of time that a group gets; None if it has no quota."""
    if version == 2:
        words = _text(group / "cpu.max").split()  # such as `150000 100000`, or `max 100000`
        quota, period = (words[0], words[1]) if len(words) == 2 else ("max", "1")
    else:
        quota, period = _text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip()
    if not (quota.isdigit() and period.isdigit()) or int(period) == 0:  # max; in version 1 it is -1
        return None
    return int(quota) / int(period)


def _groups(controller: str, process: Path) -> Iterator[tuple[int, Path]]:
    """(version of control groups, folder) of each group that holds this process down, innermost first."""
    member = {}
    for line in _text(process / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or controller in controllers.split(","):
            member[2 if number == "0" else 1] = PurePosixPath(path)
    for version, root, mount in _mounts(controller, process):
        if version in member:
            yield from ((version, folder) for folder in _upwards(member[version], root, mount))


def _mounts(controller: str, process: Path) -> Iterator[tuple[int, PurePosixPath, Path]]:
    """(version, the group that is its root, where it is mounted) of each hierarchy that may limit `controller`."""
    for line in _text(process / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        root, mount = (_unescaped(word) for word in before.split(" ")[3:5])
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            yield 2 if kind == "cgroup2" else 1, PurePosixPath(root), Path(mount)


def _unescaped(word: str) -> str:
    """`mountinfo` writes blanks in names as octal numbers."""
    return word.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def _upwards(member: PurePosixPath, root: PurePosixPath, mount: Path) -> Iterator[Path]:
    """The folders from a group up to where its hierarchy is mounted.

    In a container that is often the group itself, by whatever name the host has for it.
    """
    inside = member.relative_to(root) if member.is_relative_to(root) else PurePosixPath()
    folder = mount / inside if ".." not in inside.parts else mount
    while True:
        yield folder
        if folder == mount:
            return
        folder = folder.parent


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None  # `max` is no limit; version 1 has one beyond any memory


def _text(path: Path) -> str:
    """ "" for a file that is not there, as on other systems."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
