"""Fixtures of the engine's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from engine.execution.session import PRELOAD
from engine.processes.fork_server.client import shutdown, warm
from tests.engine.launching import HERE

TORCHS_OWN = ("torch.distributed.pipelining", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")


@pytest.fixture(scope="module")
def importable_targets() -> Iterator[None]:
    sys.path.append(str(HERE))
    yield
    sys.path.remove(str(HERE))


@pytest.fixture(scope="session")
def torchs_own_loaded() -> None:
    """From here on a fork server that has torch's own parallelisms loaded: each rank would take a second or two to."""
    shutdown()
    warm((*PRELOAD, *TORCHS_OWN, "tests.engine.torch_grid", "tests.engine.oracles"))
