"""What a run is made of before torch is there: backend, processes, and the kept one-process reference."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.communication.comm import Comm, Group
from engine.execution.one_process import await_reference, keep_reference
from engine.execution.reference import (
    MOST_STEPS,
    VERSION,
    kept_floor,
    kept_losses,
    other_order,
    prune,
    reference_path,
    usable,
    watched_steps,
    write_floor,
)
from engine.execution.session import choose_backend, members
from engine.job.errors import JobRefused
from engine.job.job import REFERENCE_TOKENS, Job, Plan
from engine.job.rules import check_reference
from engine.recording.recorder import Recorder


@pytest.mark.parametrize(
    ("ranks", "gpus", "backend", "device", "words"),
    [
        (2, 0, "gloo", "cpu", "no GPU"),
        (4, 2, "gloo", "cpu", "4 ranks cannot share 2 GPUs"),
        (4, 4, "nccl", "cuda", "a GPU of its own"),
    ],
)
def test_nccl_only_where_each_rank_has_a_gpu_and_the_reason_is_said(
    ranks: int, gpus: int, backend: str, device: str, words: str
) -> None:
    chosen = choose_backend(ranks, gpus)
    assert (chosen.name, chosen.device) == (backend, device) and words in chosen.reason


def test_both_ends_of_a_message_use_the_same_nccl_group() -> None:
    stand_ins: dict[str, Any] = {"down": object(), "up": object()}
    groups = {f"pp_act_{way}": Group(way, (0, 1), group) for way, group in stand_ins.items()}
    ends = [Comm(rank, "nccl", groups, Recorder(rank)) for rank in (0, 1)]
    assert ends[0]._message_group("pp_act", 0, 1) is ends[1]._message_group("pp_act", 0, 1)
    assert ends[0]._message_group("pp_act", 1, 0) is not ends[0]._message_group("pp_act", 0, 1)


def test_the_reference_depends_on_model_and_training_and_not_on_the_plan(tmp_path: Path) -> None:
    job = Job.from_options()
    kept = reference_path(job, tmp_path)
    for plan in ({"dp": 4}, {"tp": 2, "pp": 2, "zero": 3}, {"microbatches": 8}):
        assert reference_path(Job.from_options(**plan), tmp_path) == kept
    for other in ({"lr": 0.01}, {"layers": 5}, {"seed": 1}, {"steps": 4}, {"batch": 8}, {"tied": True}):
        assert reference_path(Job.from_options(**other), tmp_path) != kept


def test_another_text_has_another_reference(tmp_path: Path) -> None:
    text = tmp_path / "text"
    found = set()
    for content in ("one " * 100, "two " * 100):
        text.write_text(content)
        path = tmp_path / content[:3]
        path.write_text(content)
        found.add(reference_path(Job.from_options(text=str(path)), tmp_path))
    assert len(found) == 2


def test_a_reference_that_is_kept_is_not_trained_again_and_a_damaged_one_is(tmp_path: Path) -> None:
    job, reference = Job.from_options(dp=2), tmp_path / "kept.pt"
    some: dict[str, Any] = {"backend": choose_backend(2, 0), "reference": reference}
    assert [m.name for m in members(job, tmp_path, **some)][2:] == ["reference", "floor"]
    keep(reference)
    assert [m.name for m in members(job, tmp_path, **some)][2:] == ["floor"]
    write_floor(reference, {"losses": [5.0]})
    assert len(members(job, tmp_path, **some)) == 2
    reference.write_bytes(b"half a file")
    assert not usable(reference) and not reference.exists()
    assert [m.name for m in members(job, tmp_path, **some)][2:] == ["reference", "floor"]
    assert len(members(job, tmp_path, **some | {"reference": None})) == 2, "without parity nobody trains alone"


def test_a_kept_reference_that_is_removed_during_the_run_is_named_and_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"gone\.pt was removed while the run went on"):
        await_reference(tmp_path / "gone.pt", kept=True)


def keep(reference: Path, weight: float = 0.5) -> None:
    """A reference of one weight."""
    found = {"losses": [5.0], "grad_norms": [1.0], "moved": True, "samples": {}}
    keep_reference(reference, found | {"weights": {"block0.up.bias": torch.tensor([weight])}})


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_any_flipped_bit_of_a_kept_reference_means_that_it_is_made_anew(tmp_path: Path) -> None:
    reference = tmp_path / "kept.pt"
    keep(reference)
    size = reference.stat().st_size
    for at in range(0, size, size // 50):
        keep(reference)
        assert usable(reference)
        flip(reference, at)
        assert not usable(reference) and not reference.exists(), at


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b'{"version": 2}', b'{"losses": [5.0], "grad_norms"'])
def test_what_is_kept_beside_a_reference_is_whole_or_both_are_made_anew(content: bytes, tmp_path: Path) -> None:
    reference = tmp_path / "kept.pt"
    keep(reference)
    assert kept_losses(reference) == {"losses": [5.0], "grad_norms": [1.0], "moved": True}
    (tmp_path / "kept.json").write_bytes(content)
    assert kept_losses(reference) is None and not reference.exists()


def test_a_loss_that_somebody_changed_is_no_kept_loss(tmp_path: Path) -> None:
    reference = tmp_path / "kept.pt"
    keep(reference)
    facts = tmp_path / "kept.json"
    facts.write_text(facts.read_text().replace("[5.0]", "[5.1]"))
    assert kept_losses(reference) is None


@pytest.mark.parametrize("content", ["{}", "", '{"version": 2, "sha256": "", "facts": {}}', "floor"])
def test_a_damaged_floor_is_made_anew_and_the_reference_stays(content: str, tmp_path: Path) -> None:
    reference = tmp_path / "kept.pt"
    keep(reference)
    write_floor(reference, {"losses": [5.0]})
    assert kept_floor(reference) == {"losses": [5.0]}
    floor = tmp_path / "kept.floor.json"
    floor.write_text(content if content != "floor" else floor.read_text().replace("5.0", "5.5"))
    assert kept_floor(reference) is None and usable(reference)


def test_the_floor_of_another_reference_is_no_floor(tmp_path: Path) -> None:
    reference = tmp_path / "kept.pt"
    keep(reference)
    write_floor(reference, {"losses": [5.0]})
    keep(reference, weight=0.75)
    assert usable(reference) and kept_floor(reference) is None


def test_what_another_version_kept_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = tmp_path / "kept.pt"
    keep(reference)
    monkeypatch.setattr("engine.execution.reference.VERSION", VERSION + 1)
    assert not usable(reference)


def test_the_other_order_splits_the_same_batch_into_a_few_more_micro_batches() -> None:
    for batch, split in ((16, 2), (9, 3), (7, 1), (1, 1), (4093, 1)):
        other = other_order(Job.from_options(batch=batch, seq=1, tp=2, microbatches=1))
        assert other.plan == Plan(microbatches=split) and other.training.batch == batch


@given(st.integers(1, 100_000))
def test_weights_are_looked_at_after_the_first_steps_and_the_last(steps: int) -> None:
    watched = watched_steps(steps)
    assert watched == tuple(sorted(set(watched))) and watched[-1] == steps - 1 and len(watched) <= MOST_STEPS
    assert watched[:50] == tuple(range(min(steps, 50)))


def test_pruning_drops_what_was_used_longest_ago_but_nothing_of_the_last_hour(tmp_path: Path) -> None:
    for age, name in ((3, "oldest.pt"), (2, "old.pt"), (0, "new.pt"), (2, "draft.7.part")):
        (tmp_path / name).write_bytes(b"x" * 10)
        then = time.time() - age * 3600 - 60
        os.utime(tmp_path / name, (then, then))
    prune(tmp_path, keep_bytes=25)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.pt", "old.pt"]


def test_one_process_takes_as_few_micro_batches_as_fit() -> None:
    assert Job.from_options(batch=16, seq=64).one_process().plan.microbatches == 1
    long = replace(Job.from_options(batch=16), model=replace(Job().model, seq=1024))
    assert long.one_process().plan.microbatches == 4


@given(st.integers(1, 3000), st.sampled_from([1, 7, 64, 1000, 4096, 5000]))
def test_its_micro_batches_are_the_fewest_of_all_divisors(batch: int, seq: int) -> None:
    fitting = [m for m in range(1, batch + 1) if batch % m == 0 and batch // m * seq <= REFERENCE_TOKENS]
    assert Job.from_options(batch=batch, seq=seq).one_process().plan.microbatches == min(fitting, default=batch)


@pytest.mark.parametrize("batch", [10**12, 999_999_999_989, 10**18])
def test_a_batch_that_one_process_could_never_take_is_refused_at_once(batch: int) -> None:
    with pytest.raises(JobRefused, match=rf"batch={batch} takes one process.*use a smaller batch"):
        check_reference(Job.from_options(batch=batch))
    check_reference(Job.from_options(batch=4096))
