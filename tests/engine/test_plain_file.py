"""Files of others: what is no regular file is refused at once, what is too long is not read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.plain_file import decoded, lines_of, open_plain, read_plain, read_text

Make = Callable[[Path], None]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    """Three gigabytes that occupy no disk."""
    with path.open("wb") as file:
        file.truncate(3 * 10**9)


@pytest.mark.parametrize("make", [fifo, endless, Path.mkdir, sparse])
def test_what_is_no_file_of_that_kind_is_refused_at_once(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises(OSError, match=r"it is not a regular file|it is a folder|it is longer than the 1,000 bytes"):
        read_plain(path, 1000)


def test_a_link_to_a_regular_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    assert read_plain(tmp_path / "link", 4) == b"text"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_says_how_a_text_is_written(encoding: str) -> None:
    assert decoded("[plan]\r\ndp = 2 # é".encode(encoding)) == "[plan]\ndp = 2 # é"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_job_file_with_a_byte_order_mark_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes("[plan]\ndp = 2\n".encode(encoding))
    assert Job.from_toml(path).plan.dp == 2


@pytest.mark.parametrize("make", [fifo, endless, sparse])
def test_a_job_file_that_is_none_is_refused_in_a_sentence(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "job.toml"
    make(path)
    with pytest.raises(JobRefused, match=r"^the job file .*job\.toml cannot be read: it is .*\.$"):
        Job.from_toml(path)


def test_a_line_without_an_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    sparse(tmp_path / "lines")
    with open_plain(tmp_path / "lines") as file, pytest.raises(ValueError, match="longer than 100 bytes"):
        list(lines_of(file, 100))


def test_the_lines_of_a_file_are_those_that_python_finds(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\ntwo\n\nfour")
    with open_plain(tmp_path / "lines") as file, (tmp_path / "lines").open("rb") as same:
        assert list(lines_of(file)) == list(same)


def test_a_text_that_is_none_is_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\x00\xfa")
    with pytest.raises(ValueError, match="utf-8"):
        read_text(tmp_path / "file")
