"""Stores with damage at random: pages, command line and Python say what is wrong in words, and nobody else is touched.

`SHARDLAB_DAMAGED_STORES=400 pytest tests/dashboard/test_damaged_stores.py` tries so many; a few by default. The number
of a store is the seed of its damage, so one that fails can be made again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from lab.cli.parser import main
from lab.store.store import Store
from tests.dashboard.conftest import Visit
from tests.dashboard.test_pages import charts, ids
from tests.lab.damages import CONTRIVED, DAMAGES, Damage

STORES = int(os.environ.get("SHARDLAB_DAMAGED_STORES", "2"))
PAGES = ("pipeline", "grid", "memory", "communication", "live", "compare")
COMMANDS = ("show", "report", "export", "compare")
FILES = ("run.json", "summary.json", "program.txt", "cluster.toml", "ops.parquet", "memory.parquet", "metrics.parquet")
RAW = ("Traceback", "IndexError", "KeyError", "TypeError", "AttributeError", "ZeroDivisionError", "OverflowError")


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(max(1, path.stat().st_size)))


def flipped(path: Path, chance: random.Random) -> None:
    """As a bad disk does it: some bytes are others."""
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 20)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)


def gone(path: Path, chance: random.Random) -> None:
    path.unlink()


def fifo(path: Path, chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def endless(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def huge(path: Path, chance: random.Random) -> None:
    """Three gigabytes that occupy no disk."""
    os.truncate(path, 3 * 10**9)


def folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


OF_A_FILE: tuple[Callable[[Path, random.Random], None], ...] = (cut, flipped, gone, fifo, endless, huge, folder)


def damage(run: Path, seed: int) -> str:
    """Damages a run, and says how."""
    chance = random.Random(seed)
    named: dict[str, Damage] = DAMAGES | CONTRIVED
    if chance.random() < 0.3:
        name = chance.choice(list(named))
        named[name](run)
        return name
    path = run / chance.choice([name for name in FILES if (run / name).exists()])
    how = chance.choice(OF_A_FILE)
    how(path, chance)
    return f"{path.name} {how.__name__}"


@pytest.mark.parametrize("seed", range(STORES))
def test_a_store_with_damage_is_told_in_words_everywhere(
    store: Store, visit: Visit, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = ids(store)
    broken, whole = random.Random(seed).sample([found["zero1pp1"], found["zero3pp1"], found["zero0pp2"]], 2)
    how = damage(store.folder(broken), seed)
    assert whole in list(visit().dataframe[0].value["Id"]), how
    chance = random.Random(seed)
    for page in chance.sample(PAGES, 2):
        address = {"compare": {"runs": f"{whole},{broken}"}, "live": {"live": broken}}.get(page, {"run": broken})
        at = visit(page, **address)
        boxes = [str(box.value) for box in (*at.error, *at.warning, *at.info)]
        assert boxes or charts(at), (how, page)
        assert not any(word in box for box in boxes for word in RAW), (how, page, boxes)
    assert charts(visit("pipeline", run=whole)), how
    command = chance.choice(COMMANDS)
    status, said = lab(command, broken, *([whole] if command == "compare" else []))
    assert status in (0, 1, 2) and "Traceback" not in said, (how, command, said)
    assert lab("show", whole)[0] == 0, how


def lab(*words: str) -> tuple[int, str]:
    """The status of a command, and what it said."""
    out, bad = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(bad):
        status = main(list(words))
    return status, out.getvalue() + bad.getvalue()
