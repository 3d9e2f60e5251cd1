"""The engine: a job is compiled to a program, real processes execute it, and a recording says what they did."""

from pathlib import Path

HOME = Path(__file__).parent
"""The engine's own files; beside them lie those of `lab`, `dashboard` and `notebooks`."""
