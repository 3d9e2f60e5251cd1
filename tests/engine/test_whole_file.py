"""Writing where a name leads: into links, devices and pipes, in the place of regular files, never onto a folder."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from engine.whole_file import check_writable, whole_file, write_whole


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("old")
    (tmp_path / "link").symlink_to("there/file")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there/file").read_text() == "new"


def test_a_link_to_what_is_not_there_yet_makes_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"


def test_a_pipe_gets_the_text_and_stays_a_pipe(tmp_path: Path) -> None:
    path, heard = tmp_path / "pipe", list[str]()
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: heard.append(path.read_text()))
    reader.start()
    write_whole(path, "new")
    reader.join()
    assert heard == ["new"] and stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_takes_the_text_and_stays_a_device(tmp_path: Path) -> None:
    before = Path("/dev/null").stat()
    (tmp_path / "link").symlink_to("/dev/null")
    write_whole(Path("/dev/null"), "new")
    write_whole(tmp_path / "link", "new")
    after = Path("/dev/null").stat()
    assert stat.S_ISCHR(after.st_mode) and (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)
    assert (tmp_path / "link").is_symlink()


def test_what_a_device_refuses_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        write_whole(Path("/dev/full"), "new")


def test_a_file_that_a_process_has_open_is_written_not_replaced(tmp_path: Path) -> None:
    with (tmp_path / "output").open("w+") as file:
        write_whole(Path(f"/dev/fd/{file.fileno()}"), "new")
        assert os.path.samestat(os.fstat(file.fileno()), (tmp_path / "output").stat())
    assert (tmp_path / "output").read_text() == "new"


@pytest.mark.parametrize("name", ["/", ".", ""])
def test_a_folder_is_named_before_anything_is_written(name: str) -> None:
    for write in (check_writable, lambda path: write_whole(path, "new")):
        with pytest.raises(IsADirectoryError, match="it is a folder"):
            write(Path(name))


def test_who_may_read_a_file_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    write_whole(tmp_path / "file", "new")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", "old")
    with pytest.raises(ValueError, match="no"), whole_file(tmp_path / "file") as draft:
        draft.write_text("half")
        raise ValueError("no")
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "old"


def test_two_at_once_do_not_share_a_draft(tmp_path: Path) -> None:
    with whole_file(tmp_path / "file") as one, whole_file(tmp_path / "file") as other:
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "file").read_text() == "one"


def test_the_longest_name_a_disk_takes_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)
    write_whole(path, "new")
    assert path.read_text() == "new"


def test_a_full_disk_is_told_whatever_a_library_says_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        with whole_file(tmp_path / "file"):
            raise RuntimeError("basic_ios::clear: iostream error")  # as torch says

    with pytest.raises(RuntimeError, match="iostream"):
        fail()
    full = os.statvfs_result((4096, 4096, 16, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(OSError, match="No space left on device"):
        fail()
