"""Importing large libraries where an interrupt cannot reach them."""

from __future__ import annotations

import sys
import threading
from importlib import import_module


def import_whole(*modules: str) -> None:
    """Imports modules that bring torch, numpy or pyarrow along, so that the import statements after it are quick.

    An interrupt in the midst of such an import leaves it half done: libraries in C cannot be loaded a second time, and
    every later use of them fails until Python is started anew. Python raises `KeyboardInterrupt` in the main thread
    only, so that one merely waits here. Interrupted, it stops waiting; the import goes on, and the next call waits for
    the same one. What fails is left to the import statements, which say why.
    """
    missing = [name for name in modules if not _is_loaded(name)]
    if missing and threading.current_thread() is threading.main_thread():
        thread = threading.Thread(target=_import, args=(missing,), name=f"import of {missing[0]}")
        thread.start()
        while thread.is_alive():
            thread.join(
                0.1
            )  # in pieces: the system may give the signal to another thread, and then nothing wakes this one


def _is_loaded(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _import(names: list[str]) -> None:
    for name in names:
        try:
            import_module(name)
        except Exception:  # met again by whoever needs it
            return
