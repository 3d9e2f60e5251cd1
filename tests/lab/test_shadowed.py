"""A file of the user with the name of a package of Shardlab: what hides what is said in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lab
from lab.shadowed import shadow_of

ROOT = Path(lab.__file__).parent.parent


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python with the user's folder before everything else, as in a script or a notebook that lies in it."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "SHARDLAB_RUNS": str(folder / "runs")}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, text=True, capture_output=True, timeout=60
    )


@pytest.mark.parametrize("name", ["engine.py", "engine/__init__.py"])
def test_import_lab_beside_an_own_engine_says_what_hides_what(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine = 1\n")
    said = python(tmp_path, "-c", "import lab").stderr.splitlines()[-1]
    file = tmp_path / name.removesuffix("/__init__.py")
    assert said.startswith(f"ImportError: {file} hides Shardlab's own package `engine`")
    assert "rename it" in said


def test_an_engine_that_was_imported_before_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("mine = 1\n")
    code = f"import engine, sys; sys.path.remove({str(tmp_path)!r}); import lab"
    assert f"ImportError: {tmp_path / 'engine.py'} hides" in python(tmp_path, "-c", code).stderr


def test_an_own_dashboard_hides_nothing_from_lab_and_lab_dashboard_names_it(tmp_path: Path) -> None:
    (tmp_path / "dashboard.py").write_text("import lab\nprint(lab.__name__)\n")
    assert python(tmp_path, "dashboard.py").stdout == "lab\n"
    done = python(tmp_path, "-m", "lab.cli", "dashboard", "--no-browser")
    assert done.returncode == 2
    assert done.stderr.startswith(f"lab: {tmp_path / 'dashboard.py'} hides Shardlab's own package `dashboard`")
    assert done.stderr.count("\n") == 1


def test_nothing_is_said_where_nothing_is_hidden() -> None:
    assert [shadow_of(name) for name in ("engine", "lab", "dashboard", "no_such_package")] == [""] * 4
