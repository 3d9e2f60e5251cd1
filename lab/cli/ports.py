"""A port of this machine for a server that only this machine reaches."""

from __future__ import annotations

import socket

from engine.job.errors import UserError
from lab.cli.options import whole_number

LOOPBACK = "127.0.0.1"


def wished_port(wish: str | None) -> int | None:
    """The port wished for; None without a wish. Raises `UserError` if it cannot be had."""
    if wish is None:
        return None
    port = whole_number(wish, "port", 1)
    if port > 65535:
        raise UserError(f"port={port} is no port: use 1024 to 65535, or leave --port out.")
    if trouble := _trouble(port):
        raise UserError(f"port={port} cannot be used ({trouble}): leave --port out, and a free one is found.")
    return port


def free_port(first: int, tries: int = 50) -> int:
    """`first`, or the next one that is free. Raises `UserError` if none of them is."""
    for port in range(first, first + tries):
        if not _trouble(port):
            return port
    raise UserError(f"none of the ports {first} to {first + tries - 1} is free: name another one with --port.")


def _trouble(port: int) -> str:
    """Why a port cannot be listened on, "" if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return ""
