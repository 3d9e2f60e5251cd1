"""Fixtures of the engine's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.engine.launching import HERE


@pytest.fixture(scope="module")
def importable_targets() -> Iterator[None]:
    sys.path.append(str(HERE))
    yield
    sys.path.remove(str(HERE))
