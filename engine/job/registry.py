"""Registries: what the engine can be told more of (axes, schedules, model families…), each thing by its name.

A newcomer is one object and one `add`. Where it is defined outside the engine, `plug_in` imports its module here and in
every process that is started from now on, so that ranks know it too.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from engine.job.errors import Unknown


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """Things of one sort in the order in which they were added. what: the sort in words, as in "schedule"."""

    def __init__(self, what: str, *first: T) -> None:
        self.what = what
        self._entries: dict[str, T] = {}
        for one in first:
            self.add(one)

    def add(self, one: T) -> T:
        """Makes `one` known, and returns it. Its name must be free."""
        assert one.name not in self._entries, f"there is a {self.what} called {one.name!r} already"
        self._entries[one.name] = one
        return one

    def __getitem__(self, name: str) -> T:
        """Raises `Unknown` with the nearest name."""
        try:
            return self._entries[name]
        except KeyError:
            raise Unknown(self.what, name, self._entries) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def remove(self, name: str) -> None:
        """Forgets it again, as tests do with theirs."""
        del self._entries[name]


_plugged_in: list[str] = []


def plug_in(module: str) -> None:
    """Imports a module that adds to registries, here and in ranks started later (`plugged_in`)."""
    importlib.import_module(module)
    if module not in _plugged_in:
        _plugged_in.append(module)


def plugged_in() -> tuple[str, ...]:
    """The modules to import first in a new process, so that it knows what this one knows."""
    return tuple(_plugged_in)


def unplug(module: str) -> None:
    """Processes started from now on do without it."""
    _plugged_in.remove(module)
