"""What a Chrome-JSON trace must be for its viewers to show all of it, checked strictly and in whole nanoseconds.

Perfetto hides slices that do not nest, names that come with a time below zero and arrows that end nowhere, and says
nothing. The rules are those of its importer and of the Trace Event Format.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

Event = dict[str, Any]
Place = tuple[int, int]

PHASES = set("MXsfC")


def ns(time: float) -> int:
    """As Perfetto reads a time: what is left of a nanosecond is cut off."""
    return int(time * 1000)


def problems(trace: dict[str, Any]) -> list[str]:
    """Everything that is wrong with a trace, in words; [] if nothing is."""
    events: list[Event] = trace["traceEvents"]
    if unknown := {event["ph"] for event in events} - PHASES:
        return [f"events of unknown kinds {unknown}"]
    by = defaultdict(list)
    for event in events:
        by[event["ph"]].append(event)
    found = [f"before the beginning: {e}" for e in events if e.get("ts", 0) < 0 or e.get("dur", 0) < 0]
    found += [f"a name with a time: {e}" for e in by["M"] if "ts" in e]
    found += [f"an event without a time: {e}" for e in events if e["ph"] != "M" and "ts" not in e]
    return [*found, *_names(by["M"], by["X"]), *_nesting(by["X"]), *_arrows(by["s"], by["f"], by["X"]), *_counters(by)]


def _names(metadata: list[Event], slices: list[Event]) -> Iterator[str]:
    threads = [(e["pid"], e["tid"], e["args"]["name"]) for e in metadata if e["name"] == "thread_name"]
    processes = [(e["pid"], e["args"]["name"]) for e in metadata if e["name"] == "process_name"]
    yield from _twice("process", (pid for pid, _ in processes))
    yield from _twice("process name", (name for _, name in processes))
    yield from _twice("thread of any process", (tid for _, tid, _ in threads))  # Perfetto names threads by tid alone
    yield from _twice("thread name in a process", ((pid, name) for pid, _, name in threads))
    if missing := {place(e) for e in slices} - {(pid, tid) for pid, tid, _ in threads}:
        yield f"tracks without a name: {missing}"
    if missing_pids := {e["pid"] for e in slices} - {pid for pid, _ in processes}:
        yield f"processes without a name: {missing_pids}"
    if main := {(pid, tid) for pid, tid, _ in threads} & {(pid, pid) for pid, _ in processes}:
        yield f"threads that viewers take for the main one of their process: {main}"
    if 0 in {pid for pid, _ in processes} | {tid for _, tid, _ in threads}:
        yield "0 is the idle process of the system"


def _twice(what: str, values: Iterable[Any]) -> Iterator[str]:
    yield from (f"{count} times the {what} {value}" for value, count in Counter(values).items() if count > 1)


def place(event: Event) -> Place:
    return event["pid"], event["tid"]


def spans(slices: list[Event]) -> dict[Place, list[tuple[int, int, str]]]:
    """(start, end, name) of the slices of each track in ns, an enclosing slice before what is inside it."""
    found = defaultdict(list)
    for e in slices:
        found[place(e)].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e["name"]))
    return {track: sorted(mine, key=lambda s: (s[0], -s[1])) for track, mine in found.items()}


def _nesting(slices: list[Event]) -> Iterator[str]:
    for track, mine in spans(slices).items():
        open_until: list[int] = []
        for start, end, name in mine:
            while open_until and open_until[-1] <= start:
                open_until.pop()
            if open_until and end > open_until[-1]:
                yield f"on track {track} {name!r}, {start} to {end}, reaches out of one that ends at {open_until[-1]}"
            open_until.append(end)


def _arrows(sources: list[Event], ends: list[Event], slices: list[Event]) -> Iterator[str]:
    """Both ends of each, in that order in time and in the file, and each at the beginning of a slice of its track."""
    yield from _twice("arrow", (e["id"] for e in sources))
    yield from _twice("end of arrow", (e["id"] for e in ends))
    to = {e["id"]: e for e in ends}
    if set(to) ^ {e["id"] for e in sources}:
        yield f"arrows with one end: {set(to) ^ {e['id'] for e in sources}}"
        return
    begins = {(track, start) for track, mine in spans(slices).items() for start, _, _ in mine}
    for source in sources:
        end = to[source["id"]]
        if not isinstance(source["id"], int) or (source["name"], source["cat"]) != (end["name"], end["cat"]):
            yield f"an arrow whose ends do not find each other: {source}, {end}"
        if end.get("bp") != "e":
            yield f"an arrow that joins the next slice, not the one around it: {end}"
        if ns(source["ts"]) > ns(end["ts"]):
            yield f"an arrow back in time: {source}, {end}"
        for e in (source, end):
            if (place(e), ns(e["ts"])) not in begins:
                yield f"an end of an arrow outside of slices: {e}"


def _counters(by: dict[str, list[Event]]) -> Iterator[str]:
    yield from (f"a counter below zero: {e}" for e in by["C"] if min(e["args"].values()) < 0)
    series = defaultdict(list)
    for e in by["C"]:
        series[e["pid"], e["name"]].append(e)
    for who, mine in series.items():
        if len({tuple(e["args"]) for e in mine}) > 1:
            yield f"a counter that changes its series: {who}"
        yield from (f"a counter back in time: {b}" for a, b in pairwise(mine) if ns(b["ts"]) < ns(a["ts"]))
