"""The file that shows what each member of a run is doing: real members seen from outside, and places it cannot be."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.processes.launch import RunCancelled
from engine.processes.status.board import Note, Phase, StatusBoard, read_board
from tests.engine.launching import members, run

pytestmark = pytest.mark.usefixtures("importable_targets")
NAMES = ("rank 0 (data 0)", "rank 1 (data 1)", "référence")


def test_a_note_is_read_from_the_file_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "status"
    board = StatusBoard(NAMES, path)
    slot = board.slot(1)
    slot.action(b"forward block1 mb0")
    slot.waiting()
    slot.cpu(1.5)
    slot.step(7)
    notes = dict(read_board(path))
    assert tuple(notes) == NAMES
    assert notes[NAMES[1]] == Note(2, Phase.WAITING, "forward block1 mb0", 1.5, 7) == board.read(1)
    assert notes[NAMES[0]] == Note(0, Phase.STARTING, "starting", 0.0, -1)


def test_the_board_of_many_members_with_long_names_keeps_them_apart(tmp_path: Path) -> None:
    names = [f"rank {i} " + "x" * i for i in range(300)]
    board = StatusBoard(names, tmp_path / "status")
    for i in range(300):
        board.slot(i).action(f"action {i}".encode())
    assert [(name, note.action) for name, note in read_board(tmp_path / "status")] == [
        (name, f"action {i}") for i, name in enumerate(names)
    ]


def test_the_file_has_all_its_room_from_the_beginning(tmp_path: Path) -> None:
    StatusBoard([f"rank {i}" for i in range(1000)], tmp_path / "status")
    found = (tmp_path / "status").stat()
    assert found.st_blocks * 512 >= found.st_size > 128_000, "a hole in it could not be filled on a full disk"


@pytest.mark.parametrize("content", [b"", b"{}\n", b"[1]\n", b"no JSON", b'{"version": 1, "members": 3}\n', bytes(999)])
def test_what_is_no_status_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "status").write_bytes(content)
    with pytest.raises(ValueError, match="is not the status of a run"):
        read_board(tmp_path / "status")


def test_a_file_cut_short_or_with_noise_in_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "status"
    StatusBoard(NAMES, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="cut short"):
        read_board(path)
    path.write_bytes(whole[:128] + b"\xff" * 384)
    with pytest.raises(ValueError):
        read_board(path)


def test_without_a_folder_the_notes_are_kept_all_the_same(tmp_path: Path) -> None:
    board = StatusBoard(NAMES, tmp_path / "nowhere" / "status")
    board.slot(2).action(b"step")
    assert board.read(2).action == "step" and not list(tmp_path.iterdir())


def test_without_room_on_the_disk_the_notes_are_kept_all_the_same(tmp_path: Path) -> None:
    """The system's limit on the size of a file stands for a full disk: it refuses the room as one does."""
    script = (
        "import resource, sys; from pathlib import Path; from engine.processes.status.board import StatusBoard\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (256, resource.RLIM_INFINITY))\n"
        "board = StatusBoard(['a', 'b', 'c'], Path(sys.argv[1]))\n"
        "board.slot(2).action(b'step'); print(board.read(2).action)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "status"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "step\n"), done.stderr
    assert not list(tmp_path.iterdir()), "no draft is left"


def test_members_can_be_watched_from_outside_and_the_last_state_of_a_run_that_was_ended_stays(tmp_path: Path) -> None:
    path, cancel = tmp_path / "status", threading.Event()
    seen: list[list[tuple[str, Note]]] = []

    def watch() -> None:
        while len(seen) < 2 and not cancel.wait(0.02):
            now = read_board(path) if path.exists() else []
            before = seen[-1] if seen else [(name, Note(20, Phase.WAITING, "", 0.0, -1)) for name, _ in now]
            if now and all(a.counter < b.counter for (_, a), (_, b) in zip(before, now, strict=True)):
                seen.append(now)
        cancel.set()

    who = members(3, "troubled")
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    with pytest.raises(RunCancelled):
        run(tmp_path, who, cancel=cancel, status_path=path)
    watcher.join()
    assert len(seen) == 2
    for now in seen:
        assert [name for name, _ in now] == [member.name for member in who]
        assert all(note.action.startswith("all_reduce ") for _, note in now)
    last = read_board(path)
    assert all(after.counter >= before.counter for (_, before), (_, after) in zip(seen[-1], last, strict=True))


def test_a_run_on_a_disk_that_refuses_the_file_goes_on_without(tmp_path: Path) -> None:
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "in the way").touch()
    events = run(tmp_path, members(2, "sums"), status_path=tmp_path / "status")
    assert [event for _, event in events] == [{"sum": 2.0}] * 2
