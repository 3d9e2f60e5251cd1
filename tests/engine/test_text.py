"""The text that is trained on: any file, by any name, of any length, and none of it in memory."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from engine.job.errors import JobRefused
from engine.job.file_name import as_text, file_of
from engine.job.job import Job
from engine.job.rules import check
from engine.model.data import corpus, global_batch, text_digest

MB = 10**6


def job_on(path: Path) -> Job:
    return Job.from_options(text=str(path), batch=4, seq=16)


def test_tokens_are_the_bytes_of_the_file_from_where_the_seed_says(tmp_path: Path) -> None:
    content = np.random.default_rng(1).integers(0, 256, 10_000).astype(np.uint8)
    (tmp_path / "text").write_bytes(content.tobytes())
    starts = np.random.default_rng((0, 3)).integers(0, 10_000 - 16, 4)
    wanted = np.stack([content[at : at + 17] for at in starts])
    assert (global_batch(job_on(tmp_path / "text"), 3) == wanted).all()
    assert (corpus(str(tmp_path / "text")) == content).all()
    assert text_digest(str(tmp_path / "text")) == hashlib.sha256(content.tobytes()).digest()


def test_a_long_text_takes_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "text").open("wb") as file:
        file.truncate(200 * MB)
    job = job_on(tmp_path / "text")
    tracemalloc.start()
    try:
        check(job)
        assert not global_batch(job, 0).any() and len(corpus(job.training.text)) == 200 * MB
        assert len(text_digest(job.training.text)) == 32
        assert tracemalloc.get_traced_memory()[1] < 10 * MB
    finally:
        tracemalloc.stop()


def test_a_text_that_cannot_be_looked_through_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "text").open("wb") as file:
        file.truncate(40 * 10**9)
    with pytest.raises(JobRefused, match=r"has 40\.0 GB: use a file of at most 17\.2 GB\."):
        check(job_on(tmp_path / "text"))


def test_another_text_in_the_file_has_another_digest(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a" * 100)
    first = text_digest(str(path))
    path.write_bytes(b"b" * 101)
    assert text_digest(str(path)) != first


def test_a_text_cut_short_under_way_is_told(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a" * 10)
    with pytest.raises(OSError, match="cut short"):
        global_batch(job_on(path), 0)


def test_a_name_that_is_not_utf_8_is_kept_as_text_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9 %.txt")
    path.write_bytes(b"a" * 1000)
    job = job_on(path)
    assert job.training.text == f"file://{tmp_path}/caf%E9%20%25.txt" and file_of(job.training.text) == path
    check(job)
    assert (global_batch(job, 0) == ord("a")).all()
    (tmp_path / "job.toml").write_text(job.to_toml(), encoding="utf-8")
    assert Job.from_toml(tmp_path / "job.toml") == job


def test_other_names_stay_as_they_are() -> None:
    for name in ("text.txt", "/data/café.txt", "a b"):
        assert as_text(name) == name and file_of(name) == Path(name)


def test_a_cluster_file_may_have_such_a_name_too(tmp_path: Path) -> None:
    from engine.cluster.cluster import PRESETS, load_cluster

    path = tmp_path / os.fsdecode(b"caf\xe9.toml")
    path.write_bytes((PRESETS / "toy-2x4.toml").read_bytes())
    assert load_cluster(Job.from_options(cluster=str(path)).hardware.cluster).name == "toy-2x4"
