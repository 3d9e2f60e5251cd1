"""The browser's side of the widgets: an ES module with the modules it imports from beside it put in front."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)


@cache
def module(name: str) -> str:
    """One module's text. A widget's script reaches the browser alone, so it can import nothing."""
    text = (_HERE / name).read_text(encoding="utf-8")
    parts = [module(found).replace("\nexport ", "\n") for found in _IMPORT.findall(text)]
    return "".join(parts) + _IMPORT.sub("", text)


@cache
def styles() -> str:
    return (_HERE / "style.css").read_text(encoding="utf-8")
