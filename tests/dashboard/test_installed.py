"""What an installed package holds, where no checkout lies beside it."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from lab.cli.parser import main

ROOT = Path(__file__).parents[2]


def _package_of(file: Path) -> Path:
    """setuptools takes every folder for a package whose path can be written in an import."""
    return next(folder for folder in file.parents if all(part.isidentifier() for part in folder.parts))


def test_every_file_beside_the_code_is_installed_with_it() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    files = [path for top in ("engine", "lab", "dashboard") for path in (ROOT / top).rglob("*") if path.is_file()]
    beside = {path.relative_to(ROOT) for path in files if path.suffix not in (".py", ".pyc")}
    assert Path("dashboard/.streamlit/config.toml") in beside
    for file in beside:
        package = _package_of(file)
        wanted = [*patterns["*"], *patterns.get(".".join(package.parts), [])]
        assert any(ROOT / file in (ROOT / package).glob(pattern) for pattern in wanted), file


def test_the_package_declares_the_dashboard_as_a_command_of_lab() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["shardlab.commands"]
    module, _, name = declared["dashboard"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Lets nothing be installed but a package that declares these commands."""

    def declare(commands: str) -> None:
        (tmp_path / "entry_points.txt").write_text(commands, encoding="utf-8")
        found = metadata.Distribution.at(tmp_path).entry_points
        monkeypatch.setattr(metadata, "entry_points", lambda **which: found.select(**which))

    return declare


def test_lab_calls_the_command_that_is_declared(declare: Callable[[str], None]) -> None:
    declare("[shardlab.commands]\ndashboard = tests.dashboard.test_installed:pretended\n")
    assert main(["dashboard", "--port", "8765"]) == 8765


def pretended(args: object) -> int:
    return int(vars(args)["port"])


def test_without_the_dashboard_lab_says_how_to_get_it(
    declare: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    declare("[shardlab.commands]\nother = tests.dashboard.test_installed:pretended\n")
    assert main(["dashboard"]) == 2
    assert "the dashboard is not installed: install Shardlab again" in capsys.readouterr().err
