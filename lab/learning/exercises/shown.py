"""Text for a learner: Markdown, drawn by Jupyter in the page's theme, by a terminal with rich, plain elsewhere."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Shown:
    """Markdown that is shown when it is the last line of a cell."""

    markdown: str

    def _repr_markdown_(self) -> str:
        return self.markdown

    def __str__(self) -> str:
        return self.markdown

    def __repr__(self) -> str:
        if not sys.stdout.isatty():
            return self.markdown
        from rich.console import Console
        from rich.markdown import Markdown

        console = Console()
        with console.capture() as capture:
            console.print(Markdown(self.markdown))
        return capture.get()


def python(source: str) -> str:
    """A highlighted block of code."""
    return f"```python\n{source.strip()}\n```"
