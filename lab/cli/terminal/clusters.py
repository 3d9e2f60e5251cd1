"""Described clusters in a terminal: what computes, what connects, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engine.cluster.cluster import Cluster, Device, Link
from engine.cluster.collectives import group_cost
from lab.wording import nbytes, rate, seconds

ALL_REDUCED = 100_000_000  # bytes of the example


def print_clusters(found: list[Cluster], console: Console, sources: bool) -> None:
    """One block a cluster. sources: with where each number comes from."""
    for cluster in found:
        console.print(described(cluster, sources), highlight=False)
    if not sources:
        console.print("Where the numbers come from: lab clusters NAME", style="dim", highlight=False)


def described(cluster: Cluster, sources: bool = False) -> RenderableType:
    """A cluster in a few lines. sources: also where the numbers come from, and what collectives cost there."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [*_rows(cluster), *(_choices(cluster) if sources else ())]
    for name, words, source in rows:
        table.add_row(name, words)
        if sources and source:
            table.add_row("", Text(source, style="dim"))
    title = Text(cluster.name, style="bold").append(f"  {cluster.description}", style="not bold")
    return Group(title, Padding(table, (0, 0, 1, 2)))


def _rows(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """(what, its numbers, their source)."""
    for group in cluster.nodes:
        nodes = "as many nodes as needed" if group.count == 0 else f"{group.count} node{'s' * (group.count > 1)}"
        share = ", shared by all ranks" if cluster.shared else ""
        yield "devices", f"{nodes} of {group.devices}{share}", ""
        yield "device", _device(group.device), group.device.source
        if group.devices > 1:
            yield "in a node", _link(group.inside), group.inside.source
    if not cluster.shared:
        yield "between", _link(cluster.across), cluster.across.source
    yield "backend", cluster.backend, ""


def _choices(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """What an all-reduce costs over groups of growing size, and which algorithm is taken for it."""
    node, most = cluster.nodes[0].devices, cluster.devices or 16 * cluster.nodes[0].devices
    for ranks in sorted({size for size in (2, node, 2 * node, 16 * node) if 1 < size <= most}):
        choice = group_cost(cluster, tuple(range(ranks)), ranks).explain("all_reduce", ALL_REDUCED)
        yield f"{ranks} ranks", f"all-reduce of {nbytes(ALL_REDUCED)}: {seconds(choice.seconds)}, {choice.why}", ""


def _device(device: Device) -> str:
    peaks = ", ".join(f"{name} {rate(peak, 'FLOP/s')}" for name, peak in device.flops.items())
    best = max(fraction for _, fraction in device.achievable)
    words = f"{device.name}: peak {peaks}, of which matrix products reach {best:.0%};"
    words += f" {nbytes(device.memory_bytes)} of memory at {rate(device.memory_bandwidth, 'B/s')}"
    return words + (f"; {seconds(device.operator_s)} an operator" if device.operator_s else "")


def _link(link: Link) -> str:
    return f"{rate(link.bandwidth, 'B/s')}, {seconds(link.launch_s)} to start and {seconds(link.latency_s)} a hop"
