"""A store with real runs, a failed one, a corrupt one and a simulation, made once; each test gets a copy of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import dashboard
import lab
from engine.job.job import Job
from lab.store.store import Store

APP = str(Path(dashboard.__file__).parent / "app.py")
Visit = Callable[..., AppTest]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dashboard") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLAB_RUNS", str(root))
        lab.run(dp=2, zero=1)
        lab.run(dp=2, zero=3)
        lab.run(pp=2, cluster="toy-2x4")
        lab.simulate(dp=2, tp=2, keep=True)
    store = Store(root)
    failed = replace(
        store.create(Job.from_options(tp=2), ()), status="failed", message="rank 1 died in <b>backward</b>"
    )
    store.write(failed)
    shutil.rmtree(store.folder(failed.id) / "live")
    corrupt = store.create(Job.from_options(dp=4), ())
    (store.folder(corrupt.id) / "run.json").write_text("{")
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    root = tmp_path / "runs"
    shutil.copytree(made, root)
    monkeypatch.setenv("SHARDLAB_RUNS", str(root))
    return Store(root)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "none"))
    return Store(tmp_path / "none")


@pytest.fixture
def visit() -> Visit:
    """Opens a page of the dashboard, with what its address says."""

    def open_page(page: str = "", **address: str) -> AppTest:
        at = AppTest.from_file(APP, default_timeout=120)
        at.query_params.update(address)
        at.run()
        if page:
            at.switch_page(f"app_pages/{page}.py").run()
        assert not at.exception, [one.message for one in at.exception]
        return at

    return open_page
