"""What all tests share, and how they are shared out among workers."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lab.facade import Run

TOGETHER = ("tests/browser/test_dashboard", "tests/engine/test_oracle")
"""How the names of files begin that use one server together, so that one worker must have them."""
LONGEST = (
    "tests/browser/test_notebooks",
    "tests/browser/test_dashboard",
    "tests/published/test_iteration_times",
    "tests/engine/test_random_jobs",
    "tests/engine/test_estimate",
    "tests/engine/test_parity",
    "tests/engine/test_planner",
    "tests/engine/test_oracle",
)
"""How the names of files begin that take a worker a minute or more, the longest first."""


def pytest_configure() -> None:
    """Ctrl-C works even where the tests run in the background of a script, whose jobs are started to ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def unit(nodeid: str) -> str:
    """What a test must share a worker with: its file, or all the files of its server."""
    file = nodeid.split("::")[0]
    return next((beginning for beginning in TOGETHER if file.startswith(beginning)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, or one worker would be at it when the others have nothing left."""

    def place(item: pytest.Item) -> int:
        return next((n for n, beginning in enumerate(LONGEST) if item.nodeid.startswith(beginning)), len(LONGEST))

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `--dist loadfile` does, but for files that use one server."""
    from xdist.scheduler import LoadFileScheduling

    class ByServer(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    return ByServer(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Eight real processes, 2 × 2 × 2 with ZeRO-1, made once for all tests that only look at it."""
    import lab

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("real") / "runs"))
        return lab.run(dp=2, tp=2, pp=2, zero=1)
