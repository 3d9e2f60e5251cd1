"""What may have happened to the folder of a run: edited by hand, of another version, a bad disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Damage = Callable[[Path], object]


def edited(name: str, **changes: Any) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def column(table: str, name: str, value: object) -> Damage:
    """Every row of a table says the same."""

    def damage(folder: Path) -> None:
        path = folder / f"{table}.parquet"
        rows = pq.read_table(path)
        at = rows.column_names.index(name)
        pq.write_table(rows.set_column(at, name, pa.array([value] * rows.num_rows, rows.schema.field(name).type)), path)

    return damage


def garbled(folder: Path) -> None:
    """As a bad disk does it: the frame is whole, what is inside is not."""
    path = folder / "ops.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * (len(content) // 2) + content[4 + len(content) // 2 :])


def replaced_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file")


DAMAGES: dict[str, Damage] = {
    "no job": edited("run.json", job={}),
    "a job of another version": edited("run.json", job={"flux": 3}),
    "a job of a billion ranks": edited("run.json", job={"dp": 10**9, "batch": 4 * 10**9}),
    "a job of another run": edited("run.json", job={"dp": 1}),
    "no summary of a run": edited("summary.json", steps=[1, 2, 3]),
    "a summary without bubbles": edited("summary.json", bubble=None),
    "garbled operations": garbled,
    "ranks that there are not": column("ops", "rank", 99),
    "peers that there are not": column("ops", "peers", [77, 88]),
    "bytes beyond counting": column("ops", "logical_bytes", 2**62),
    "a file in its place": replaced_by_a_file,
    "nothing": shutil.rmtree,
}
"""What a newcomer, a bad disk or another version may do."""

CONTRIVED: dict[str, Damage] = {
    "streams that there are not": column("ops", "stream", "ether"),
    "another library's collectives": column("ops", "op", "broadcast"),
    "communication with nobody": column("ops", "peers", []),
    "names left out": column("ops", "name", None),
    "all inside what there is not": column("ops", "parent", 10**9),
    "the end of time": column("ops", "end_ns", 2**62),
    "categories that there are not": column("memory", "category", "hopes"),
    "memory of no step": column("memory", "step", 99),
    "steps of no time": column("metrics", "seconds", 0.0),
}
"""Tables of the right form that tell what cannot have been."""
