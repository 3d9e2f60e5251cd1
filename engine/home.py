"""Where the engine's own files are; beside them lie those of `lab`, `dashboard` and `notebooks`."""

from pathlib import Path

HOME = Path(__file__).parent
