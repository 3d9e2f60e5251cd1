"""Described hardware: devices, the links between them, and which rank sits where.

A cluster is data, read from TOML. What things cost on it is computed elsewhere: operators in `engine.cluster.roofline`,
collectives and messages in `engine.cluster.collectives`. Units: seconds, bytes, FLOP; bandwidths in bytes/s, decimal.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import tomli_w
from pydantic import Field

from engine.job.errors import told
from engine.job.file_name import file_of
from engine.job.toml_file import read_toml

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Precision = Literal["fp32", "bf16"]

PRESETS = Path(__file__).parent / "presets"
_STRICT = pydantic.ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class Device:
    """What computes: one GPU, or one core."""

    __pydantic_config__ = _STRICT

    name: str
    flops: Annotated[Mapping[Precision, Positive], Field(min_length=1)] = field(hash=False)
    """Peak FLOP/s of matrix products, by precision."""
    achievable: Annotated[tuple[tuple[Positive, Fraction], ...], Field(min_length=1)]
    """Points (FLOPs of one matrix product, fraction of the peak it reaches), by rising FLOPs."""
    memory_bytes: Annotated[int, Field(gt=0)]
    memory_bandwidth: Positive
    """Bytes/s at best, reads and writes together."""
    memory_fraction: Fraction
    """Share of it that operators other than matrix products reach."""
    operator_s: NotNegative = 0.0
    """What every operator costs besides: dispatch and launch. 0 where a GPU's queue hides it."""
    host_s: NotNegative = 0.0
    """What the rank's Python takes from one recorded operation to the next, collectives inside layers included; the
    device stands idle meanwhile. 0 where the host runs ahead of a GPU's queue."""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Link:
    """How two devices reach each other: an operation takes launch + hops · latency + bytes / bandwidth."""

    __pydantic_config__ = _STRICT

    launch_s: NotNegative
    """Once for every operation."""
    latency_s: NotNegative
    """For every hop of the algorithm, one after the other."""
    bandwidth: Positive
    """Bytes/s that one device sends; it can receive as much at the same time."""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Equal nodes. `count` 0, for the only group of a cluster, means as many as the job needs."""

    __pydantic_config__ = _STRICT

    count: Annotated[int, Field(ge=0)]
    devices: Annotated[int, Field(gt=0)]
    """Devices in each node."""
    device: Device
    inside: Link
    """Between the devices of one node."""


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """A link, in both directions, with less bandwidth than its kind has: between two ranks, or between two nodes."""

    __pydantic_config__ = _STRICT

    between: Literal["ranks", "nodes"]
    a: Annotated[int, Field(ge=0)]
    b: Annotated[int, Field(ge=0)]
    factor: Fraction
    """What its bandwidth is multiplied by: 0.5 is half as fast."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes of devices and what connects them. Rank r sits on device r; nodes are filled in order."""

    __pydantic_config__ = _STRICT

    name: Annotated[str, Field(pattern=r"^[\w][\w .-]*$", max_length=60)]
    description: str = ""
    nodes: Annotated[tuple[Nodes, ...], Field(min_length=1)]
    across: Link
    """Between nodes; its bandwidth is one device's share of what its node has."""
    backend: Literal["nccl", "gloo"] = "nccl"
    """Whose collectives run. gloo knows only rings, and carries out a reduce-scatter as a whole all-reduce."""
    shared: bool = False
    """More ranks than devices may run: rank r on device r mod n, where ranks take turns. Only with a single node."""
    slow_ranks: Mapping[Annotated[int, Field(ge=0)], Positive] = field(default_factory=dict, hash=False)
    """Speed of a rank's device, as a factor: 0.5 computes half as fast. Its links are not touched."""
    slow_links: tuple[SlowLink, ...] = ()

    @property
    def devices(self) -> int | None:
        """Devices in all; None where there are as many as a job needs."""
        total = sum(group.count * group.devices for group in self.nodes)
        return total or None

    def check_size(self, world_size: int) -> None:
        """Raises `ValueError` if `world_size` ranks need more devices than there are."""
        if self.devices is not None and world_size > self.devices and not self.shared:
            raise ValueError(
                f"the plan needs dp·tp·pp={world_size} devices, and cluster {self.name} has {self.devices}: "
                f"use at most {self.devices} ranks, or another cluster."
            )

    def device_of(self, rank: int, world_size: int) -> Device:
        """The device that `rank` of `world_size` computes on."""
        assert 0 <= rank < world_size
        return self._place(rank)[1].device

    def node_of(self, rank: int) -> int:
        """The node, counted from 0, that `rank` sits in."""
        return self._place(rank)[0]

    def inside_of(self, rank: int) -> Link:
        """The link inside the node of `rank`."""
        return self._place(rank)[1].inside

    def speed_of(self, rank: int, world_size: int) -> float:
        """Speed of `rank`'s device as a factor: below 1 where it is slow, or where ranks take turns on it."""
        assert 0 <= rank < world_size
        return self.slow_ranks.get(rank, 1.0) / self.ranks_on_device(rank, world_size)

    def ranks_on_device(self, rank: int, world_size: int) -> int:
        """How many ranks compute on the device of `rank`: 1 unless the cluster is shared."""
        if not self.shared or self.devices is None:
            return 1
        return len(range(rank % self.devices, world_size, self.devices))

    def _place(self, rank: int) -> tuple[int, Nodes]:
        """The number of the node of `rank`, and what it is like."""
        if self.shared and self.devices is not None:
            rank %= self.devices
        first = 0
        for group in self.nodes:
            if group.count == 0 or rank < group.count * group.devices:
                return first + rank // group.devices, group
            first += group.count
            rank -= group.count * group.devices
        raise ValueError(f"cluster {self.name} has only {self.devices} devices.")

    def to_toml(self) -> str:
        """The cluster as a file that `load_cluster` reads back exactly."""
        tables = dataclasses.asdict(self)
        return tomli_w.dumps(tables | {"slow_ranks": {str(r): factor for r, factor in self.slow_ranks.items()}})


def checked(cluster: Cluster) -> Cluster:
    """The cluster, if it makes sense, however it was made. Raises `ValueError` with one sentence that says why not."""
    return cluster_from(dataclasses.asdict(cluster))


def cluster_from(tables: Mapping[str, Any], where: str = "") -> Cluster:
    """The cluster that nested tables describe. Raises `ValueError` that names the field; `where` is the file."""
    where = where or f"cluster {tables.get('name', '')}".strip()
    try:
        cluster: Cluster = _adapter().validate_python(tables)
    except pydantic.ValidationError as error:
        raise ValueError(f"{where}: {_sentence(error)}") from None
    problem = next(_problems(cluster), None)
    if problem:
        raise ValueError(f"{where}: {problem}")
    return cluster


def _problems(cluster: Cluster) -> Iterator[str]:
    """Rules between fields that the cluster breaks."""
    counts = [group.count for group in cluster.nodes]
    if len(counts) > 1 and 0 in counts:
        yield "nodes.count=0 (as many as needed) is not valid beside other nodes: give every group a count."
    if cluster.shared and counts != [1]:
        yield "shared=true is not valid for several nodes: use one [[nodes]] table with count=1."
    for group in cluster.nodes:
        sizes = [size for size, _ in group.device.achievable]
        if sizes != sorted(set(sizes)):
            yield "nodes.device.achievable is not valid: its points must come in the order of rising FLOPs."
    for link in cluster.slow_links:
        if link.a == link.b:
            yield f"slow_links joins {link.between} {link.a} and {link.b}: use two different ones."


def load_cluster(name_or_path: str | Path, folders: Iterable[Path] = ()) -> Cluster:
    """Reads a preset by name, a `.toml` file by path, or `<name>.toml` in one of `folders`, which come first.

    Raises `ValueError` with the nearest known name, or the field that is wrong.
    """
    path = file_of(name_or_path) if isinstance(name_or_path, str) else name_or_path
    if path.suffix == ".toml":
        return _read(path)
    known = cluster_files(folders)
    if str(name_or_path) in known:
        return _read(known[str(name_or_path)])
    near = difflib.get_close_matches(str(name_or_path), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? The known ones are" if near else "use the path of a .toml file, or one of"
    raise ValueError(f"there is no cluster called {told(str(name_or_path))}: {hint} {', '.join(known)}.")


def cluster_files(folders: Iterable[Path] = ()) -> dict[str, Path]:
    """Every cluster known by name, and its file."""
    found: dict[str, Path] = {}
    for folder in (*folders, PRESETS):
        for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem):
            found.setdefault(path.stem, path)
    return found


def _read(path: Path) -> Cluster:
    return cluster_from(read_toml(path, "the cluster file"), f"the cluster file {path}")


def _sentence(error: pydantic.ValidationError) -> str:
    """The first thing wrong, in plain words."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"] if part != "[key]")
    kind, limits = first["type"], first.get("ctx", {})
    if kind == "missing":
        return f"{name} is missing."
    if kind == "unexpected_keyword_argument":
        return f"{name} is not a field that a cluster has."
    wanted = {
        "greater_than": f"a number above {limits.get('gt')}",
        "greater_than_equal": f"a number of at least {limits.get('ge')}",
        "less_than_equal": f"a number of at most {limits.get('le')}",
        "finite_number": "a finite number",
        "literal_error": str(limits.get("expected", "")).replace("'", ""),
        "string_pattern_mismatch": "letters, digits, dots and dashes",
        "string_too_long": f"at most {limits.get('max_length')} letters",
        "too_short": f"at least {limits.get('min_length')} of them",
    }
    kinds = {
        "tuple": "a list", "dict": "a table", "dataclass": "a table", "int": "a whole number", "float": "a number",
        "bool": "true or false", "string": "text",
    }  # fmt: skip
    fallback = next((words for start, words in kinds.items() if kind.startswith(start)), first["msg"])
    return f"{name}={told(first['input'])} is not valid: use {wanted.get(kind, fallback)}."


@cache
def _adapter() -> pydantic.TypeAdapter[Cluster]:
    return pydantic.TypeAdapter(Cluster)  # dear to make
