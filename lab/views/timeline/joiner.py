"""Joins the small files of the timeline's script into the text of one module, so that no build step is needed.

Files may say `import { a, b } from "./file.js";` and put `export` before a declaration; that is all of ES modules that
they need; a file is found by its name in whichever folder it lies. All top-level names share one scope, so no two files
may declare the same one.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent / "js"
_FOLDERS = (HERE, *(HERE / room for room in ("draw", "hosts", "input")))

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|class|const|let)", re.MULTILINE)
_DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)
_EXPORTED = re.compile(r"^export (?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)


@cache
def module(entry: str = "timeline.js", *folders: Path) -> str:
    """The text of the module whose exports are those of the file `entry`: `mount` of "timeline.js".

    folders: where files are looked for before the timeline's own folder, which holds what all scripts share.

    Raises `ValueError` for imports that go round in a circle or name what is not exported, for a name declared
    twice, and for what is not in the form above.
    """
    texts = _in_order(entry, (*folders, *_FOLDERS))
    _refuse_clashes(texts)
    body = "\n".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in texts.values())
    exported = _EXPORTED.findall(texts[entry])
    return f"{body}\nexport {{ {', '.join(exported)} }};\n" if exported else body


def script(entry: str, *folders: Path) -> str:
    """The same as the text of a plain script, which leaves no names behind. `entry` exports nothing."""
    text = module(entry, *folders)
    if re.search(r"^export ", text, re.MULTILINE):
        raise ValueError(f"{entry} exports something, which a plain script cannot.")
    return f'(() => {{\n"use strict";\n{text}}})();\n'


def _in_order(entry: str, folders: tuple[Path, ...]) -> dict[str, str]:
    """The text of each file, those first that others import."""
    found: dict[str, str] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"imports go round in a circle: {' → '.join((*above, name))}.")
        if name in found:
            return
        home = next((folder for folder in folders if (folder / name).exists()), folders[0])
        text = (home / name).read_text(encoding="utf-8")
        for wanted, other in _IMPORT.findall(text):
            visit(other, (*above, name))
            absent = {w.strip() for w in wanted.split(",") if w.strip()} - set(_EXPORTED.findall(found[other]))
            if absent:
                raise ValueError(f"{name} imports {', '.join(sorted(absent))}, which {other} does not export.")
        if re.search(r"^import ", _IMPORT.sub("", text), re.MULTILINE):
            raise ValueError(f'{name} has an import that is not of the form import {{ a, b }} from "./file.js";')
        found[name] = text

    visit(entry, ())
    return found


def _refuse_clashes(texts: dict[str, str]) -> None:
    homes: dict[str, str] = {}
    for file, text in texts.items():
        for name in _DECLARED.findall(text):
            if name in homes:
                raise ValueError(f"{homes[name]} and {file} both declare {name}.")
            homes[name] = file
