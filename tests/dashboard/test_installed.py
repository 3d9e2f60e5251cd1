"""What an installed package holds, where no checkout lies beside it."""

from __future__ import annotations

import tomllib
from pathlib import Path

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
