"""Who is to blame: finding the root among many reports, and the words for it.

When one rank fails, every rank that talks to it fails a moment later with "Connection reset by peer". A learner must be
told the first cause, not the loudest one.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from engine.processes.status.board import Note, Phase, StatusBoard

SHOWN_OTHERS, SHOWN_LINES = 4, 20  # in a failure's message
SERVER = -1  # the fork server, in place of a member's index
WAITS = (Phase.WAITING, Phase.AWAITING)

_PEER_GONE = re.compile(
    r"connection (was )?(reset|closed|refused|aborted)|broken pipe|timed out|(socket|wait|application) timeout|"
    r"connectFullMesh failed",
    re.IGNORECASE,
)
# What a dump of Python's stacks tells of us, and not of the target: our threads, and the frames below the target.
_MACHINERY = re.compile(
    r'^(Thread .*\n)?  File ".*engine/processes/worker_process\.py", line \d+ in _(run|heartbeat)\n(  File .*\n?)*|'
    r"^Extension modules: .*\n?",
    re.MULTILINE,
)


@dataclass(frozen=True)
class SystemTrouble:
    """What the operating system refused: the number of an `OSError` (None: it has none), and its file, "" for none."""

    errno: int | None
    filename: str


@dataclass(frozen=True)
class Raised:
    """An exception in a member, as it tells its supervisor. communication: it only says that a peer is gone."""

    headline: str
    traceback: str
    communication: bool
    system: SystemTrouble | None


@dataclass(frozen=True)
class Failure:
    """Why a run failed: the root, and in `others` what came of it, one line per other member.

    `cause` reads on from `member`: "was killed by signal SIGKILL", "raised ValueError: not a number". system: of a
    member that raised an `OSError`.
    """

    member: str
    action: str
    cause: str
    traceback: str
    others: tuple[str, ...]
    system: SystemTrouble | None = None

    def __str__(self) -> str:
        """One paragraph for a learner, and the end of the traceback or of the member's last words."""
        what, colon, detail = self.cause.partition(": ")
        where = f" while in '{self.action}'" if self.action else ""
        text = f"{self.member} {what}{where}{colon}{detail}"
        text += "" if text.endswith((".", "!", "?")) else "."
        if self.others:
            more = f"; and {len(self.others) - SHOWN_OTHERS} more" if len(self.others) > SHOWN_OTHERS else ""
            text += " Meanwhile: " + "; ".join(self.others[:SHOWN_OTHERS]) + more + "."
        return "\n".join([text, *self.traceback.splitlines()[-SHOWN_LINES:]])


class Grade(IntEnum):
    """How likely a report is the root: the higher, the nearer."""

    COMMUNICATION = 1
    EXCEPTION = 2
    DEATH = 3
    SERVER = 4


@dataclass(frozen=True)
class Trouble:
    """One report of something wrong. `cause` reads on from the member's name: "was killed by signal SIGKILL"."""

    index: int
    grade: Grade
    cause: str
    traceback: str = ""
    system: SystemTrouble | None = None

    @property
    def short(self) -> str:
        """The cause; what a member says of a lost peer is long, and always the same."""
        return self.cause.partition(": ")[0] if self.grade is Grade.COMMUNICATION else self.cause


def is_communication_error(error: BaseException) -> bool:
    """Whether the error, or the one it was raised from, only says that a peer is gone or silent."""
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if isinstance(error, RuntimeError) and _PEER_GONE.search(str(error)):
        return True
    return error.__cause__ is not None and is_communication_error(error.__cause__)


def root_of(troubles: Sequence[Trouble]) -> Trouble:
    """The likeliest root: the highest grade, and the earliest of those."""
    return max(troubles, key=lambda trouble: trouble.grade)  # `max` keeps the first of equals


def failure(troubles: Sequence[Trouble], names: Sequence[str], board: StatusBoard) -> Failure:
    """The report to the client: the root, and what came of it elsewhere."""
    root = root_of(troubles)
    others = tuple(
        f"{names[trouble.index]} {trouble.short}" for trouble in troubles if trouble.index not in (root.index, SERVER)
    )
    if root.index == SERVER:
        return Failure("the fork server", "", root.cause, root.traceback, others)
    action = board.read(root.index).action
    return Failure(names[root.index], action, root.cause, root.traceback, others, root.system)


def raised(index: int, told: Raised) -> Trouble:
    if told.communication:
        return Trouble(index, Grade.COMMUNICATION, f"lost its connection to a peer: {told.headline}", told.traceback)
    return Trouble(index, Grade.EXCEPTION, f"raised {told.headline}", told.traceback, told.system)


def died(index: int, code: int, words: str) -> Trouble:
    """A death, from its exit code (negative: a signal) and the member's last words.

    gloo can also abort a process because its peer is gone; that is no root."""
    words = readable(words)
    if code >= 0:
        cause = f"exited with status {code}" if code else "exited before its work was done, with status 0"
        return Trouble(index, Grade.DEATH, cause, words)
    grade, cause = Grade.DEATH, f"was killed by signal {signal_name(-code)}"
    if -code == signal.SIGKILL:
        cause += ": if nobody sent it, the system did because memory ran out"
    elif -code == signal.SIGABRT and (what := re.search(r"what\(\):\s*(.+)", words)):
        cause += f": {what[1]}"
        grade = Grade.COMMUNICATION if _PEER_GONE.search(what[1]) else Grade.DEATH
    return Trouble(index, grade, cause, words)


def readable(words: str) -> str:
    """A member's last words without our own machinery in the stacks it printed."""
    return _MACHINERY.sub("", words + "\n").strip()


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def culprit(notes: Mapping[int, Note], stopped: Mapping[int, int]) -> int:
    """Who keeps a stuck run: one that is stopped, else one that waits for nobody, else (a deadlock) the first."""
    idle = [index for index, note in notes.items() if note.phase not in WAITS]
    return next(iter([*stopped, *idle, *notes]))


def stuck(
    index: int,
    seconds: float,
    names: Sequence[str],
    notes: Mapping[int, Note],
    stopped: Mapping[int, int],
    words: str,
) -> Failure:
    """The report on a group that stands still because of `index`: `notes` are those of its members still running."""
    note = notes[index]
    if index in stopped:
        cause = f"was stopped by signal {signal_name(stopped[index])} and made no progress for {seconds:.1f} s"
    elif note.phase is Phase.AWAITING:
        cause = f"waited {seconds:.1f} s more after all that it could wait for had ended"
    elif note.phase is Phase.WRITING:
        cause = f"made no progress for {seconds:.1f} s, writing its recording to the disk"
    elif note.phase is not Phase.WAITING:
        cause = f"made no progress for {seconds:.1f} s and waited for nobody"
    else:
        cause = f"is in a deadlock: for {seconds:.1f} s, all members still running waited for one another"
    others = tuple(
        f"{names[other]} was {theirs.phase.name.lower()} in '{theirs.action}'"
        for other, theirs in notes.items()
        if other != index
    )
    return Failure(names[index], note.action, cause, readable(words), others)
