"""What all tests share."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab.facade import Run


def pytest_configure() -> None:
    """Ctrl-C works even where the tests run in the background of a script, whose jobs are started to ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Eight real processes, 2 × 2 × 2 with ZeRO-1, made once for all tests that only look at it."""
    import lab

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("real") / "runs"))
        return lab.run(dp=2, tp=2, pp=2, zero=1)
