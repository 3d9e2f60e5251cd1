"""Says in a sentence when a file of the user has the name of a package of Shardlab, and Python finds it first."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_HOME = Path(__file__).parents[1]


def shadow_of(package: str) -> str:
    """What hides this package, which lies beside `lab`, and what to do; "" if nothing does."""
    found = _found(package)
    if found is None or found.resolve() == (_HOME / package).resolve():
        return ""
    file = found if found.is_dir() else found.with_suffix(".py")
    return (
        f"{file} hides Shardlab's own package `{package}`, which has the same name: rename it, or start Python"
        " in another folder."
    )


def check_unhidden(package: str) -> None:
    """Raises `ImportError` in a sentence for a package that the user's files hide."""
    if said := shadow_of(package):
        raise ImportError(said, name=package)


def _found(package: str) -> Path | None:
    """The folder of a package, or a module's path without its ending, that an import of this name gives."""
    try:
        spec = find_spec(package)
    except ValueError:  # something was put in its place by hand
        return Path(str(getattr(sys.modules[package], "__file__", None) or package)).with_suffix("")
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin or package).with_suffix("")
