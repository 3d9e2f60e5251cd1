"""Commands that look at a run which is damaged, or tells what cannot have been: one sentence, never a traceback."""

from __future__ import annotations

import errno
import os
import random
import re
import secrets
import shutil
from pathlib import Path

import pytest

from lab.cli.open_runs import opened_runs
from lab.cli.parser import main
from lab.facade import load
from lab.store.stored_run import RunCorrupt
from tests.lab.conftest import PretendedLaunch, pretend
from tests.lab.damages import CONTRIVED, DAMAGES
from tests.lab.test_cli import one_object

LOOKS = (
    "show BROKEN",
    "report BROKEN",
    "report BROKEN --cluster toy-2x4",
    "compare WHOLE BROKEN",
    "compare BROKEN WHOLE --cluster toy-2x4",
    "export BROKEN --format perfetto -o trace.json",
    "export BROKEN --format csv -o tables",
)


SEED, SOME = "SHARDLAB_LOOKS_SEED", "SHARDLAB_LOOKS"
"""Three commands are drawn anew for each damage of each run of the tests; `SHARDLAB_LOOKS=7` takes them all."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, whose processes were pretended, made once."""
    root = tmp_path_factory.mktemp("pair")
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, root)
        assert main(["run", "--dp", "2", "--pp", "2", "--microbatches", "2"]) == main(["run", "--dp", "2"]) == 0
    return root / "runs"


@pytest.fixture
def broken(pair: Path, pretended: PretendedLaunch) -> str:
    """A run to be damaged, of two that there are."""
    shutil.copytree(pair, "runs")
    return load("-2").id


@pytest.fixture(scope="module")
def seed() -> int:
    return int(os.environ.get(SEED) or secrets.randbelow(10**6))


@pytest.mark.parametrize("kind", DAMAGES | CONTRIVED)
def test_whatever_the_files_of_a_run_hold_no_command_ends_in_a_traceback(
    broken: str, capsys: pytest.CaptureFixture[str], kind: str, seed: int
) -> None:
    whole = load().id
    (DAMAGES | CONTRIVED)[kind](Path("runs") / broken)
    for look in random.Random(f"{seed} {kind}").sample(LOOKS, int(os.environ.get(SOME, "3"))):
        capsys.readouterr()
        status = main(look.replace("BROKEN", broken).replace("WHOLE", whole).split())
        said = capsys.readouterr().err
        again = f"{look}, of {SEED}={seed}: {said}"
        assert status in (0, 1, 2) and said.count("\n") == (1 if status else 0), again
        assert said.rstrip("\n").isprintable(), again


def test_what_nobody_foresaw_is_told_with_its_run_and_its_place(
    broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    CONTRIVED["names left out"](Path("runs") / broken)
    capsys.readouterr()
    assert main(["report", broken, "--json"]) == 1
    told = one_object(capsys.readouterr().out)
    assert (told["run"], told["status"]) == (broken, "corrupt")
    assert f"{broken} cannot be shown" in told["error"] and re.search(r"\(\w+: .* at [a-z_]+\.py:\d+\)", told["error"])


def test_of_several_runs_none_is_accused_alone(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = load().id
    CONTRIVED["another library's collectives"](Path("runs") / broken)
    capsys.readouterr()
    assert main(["compare", whole, broken, "--cluster", "toy-2x4", "--json"]) == 1
    told = one_object(capsys.readouterr().out)
    assert told["run"] is None and f"{whole} or {broken} cannot be shown" in told["error"]


def test_an_interrupt_and_a_full_disk_are_not_taken_for_damage(broken: str) -> None:
    for trouble in (KeyboardInterrupt(), OSError(errno.ENOSPC, "full")):
        with pytest.raises(type(trouble)), opened_runs(broken):
            raise trouble
    with pytest.raises(RunCorrupt, match=broken), opened_runs(broken):
        raise KeyError(99)
