"""Frames on a local socket: how client, supervisor and members talk.

A frame is a kind (one byte), the index of the member it concerns, and a body. The supervisor forwards bodies without
looking inside, so events are pickled once by the member and unpickled once by the client.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

REQUEST = b"R"  # client to supervisor: what to run
CANCEL = b"C"  # client to supervisor: end it
STARTED = b"S"  # supervisor to client: its process id
EVENT = b"E"  # member to client, through the supervisor
RAISED = b"X"  # member to supervisor: the target raised
DONE = b"D"  # member to supervisor, supervisor to client: ended well
FAILED = b"F"  # supervisor to client: the fields of a Failure

_HEADER = struct.Struct("!cHI")
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Request:
    """What the client wants run. Paths are absolute; the surroundings are the client's, so imports work as there.

    payloads: the list of all members' payloads, pickled as one, so that what they share (a program) is sent once."""

    names: tuple[str, ...]
    targets: tuple[str, ...]
    groups: tuple[str, ...]
    payloads: bytes
    folder: str
    log_path: str
    run_json: str | None
    status_path: str | None
    hang_seconds: float
    spin_seconds: float
    sys_path: tuple[str, ...]
    environ: dict[str, str]
    cwd: str


class Frame(NamedTuple):
    kind: bytes
    member: int
    body: bytes


def encode(kind: bytes, member: int = 0, body: bytes = b"") -> bytes:
    return _HEADER.pack(kind, member, len(body)) + body


class Channel:
    """One end of a stream socket that never blocks its process: what the kernel does not take at once is kept."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._received = bytearray()
        self._unsent = bytearray()
        self.closed = False  # the other end is gone

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    @property
    def pending(self) -> bool:
        """Something is left to send: call `flush` when the socket is writable."""
        return bool(self._unsent) and not self.closed

    def put(self, kind: bytes, member: int = 0, body: bytes = b"") -> None:
        self._unsent += encode(kind, member, body)
        self.flush()

    def flush(self) -> None:
        try:
            while self.pending:
                del self._unsent[: self._sock.send(memoryview(self._unsent)[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def take(self, *, all_of_it: bool = False) -> list[Frame]:
        """The frames that have arrived whole. `all_of_it` empties the socket: for a process that has ended."""
        while self._receive() and all_of_it:
            pass
        return self._split()

    def _receive(self) -> bool:
        try:
            chunk = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # reset by a peer that died with unread data
            chunk = b""
        self._received += chunk
        self.closed = self.closed or not chunk
        return bool(chunk)

    def _split(self) -> list[Frame]:
        frames, at, data = [], 0, self._received
        while len(data) - at >= _HEADER.size:
            kind, member, length = _HEADER.unpack_from(data, at)
            end = at + _HEADER.size + length
            if len(data) < end:
                break
            frames.append(Frame(kind, member, bytes(data[at + _HEADER.size : end])))
            at = end
        del data[:at]
        return frames
