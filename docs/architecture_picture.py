"""Draws which room may use which, from the imports of the code: `python -m docs.architecture_picture`.

Makes `docs/images/architecture.svg`. A room is a folder, an arrow says "uses", and what follows from two is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

HERE = Path(__file__).parent
ROOT = HERE.parent
PICTURE = HERE / "images" / "architecture.svg"
PACKAGES = ("dashboard", "lab", "engine")
WIDTH, BOX, TALL, GAP, ROW = 1160, 212, 76, 20, 116
Uses = dict[str, frozenset[str]]


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, those inside functions and for type checkers included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def rooms(package: str) -> Uses:
    """What each room of a package uses of its neighbours."""
    folders = [path.parent for path in sorted((ROOT / package).glob("*/__init__.py"))]
    names = {folder.name for folder in folders}

    def used(folder: Path) -> Iterator[str]:
        for path in folder.rglob("*.py"):
            for parts in (name.split(".") for name in imports(path)):
                if parts[0] == package and len(parts) > 1 and parts[1] in names - {folder.name}:
                    yield parts[1]

    return {folder.name: frozenset(used(folder)) for folder in folders}


def heights(uses: Mapping[str, frozenset[str]]) -> dict[str, int]:
    """How high each room stands: one above the highest that it uses. Raises `ValueError` for rooms in a circle."""
    found: dict[str, int] = {}

    def height(room: str, above: tuple[str, ...]) -> int:
        if room in above:
            raise ValueError(f"rooms use each other in a circle: {' → '.join((*above, room))}.")
        if room not in found:
            found[room] = 1 + max((height(one, (*above, room)) for one in uses[room]), default=-1)
        return found[room]

    for room in uses:
        height(room, ())
    return found


def direct(uses: Mapping[str, frozenset[str]]) -> set[tuple[str, str]]:
    """The arrows that do not follow from two others."""

    def reach(room: str) -> frozenset[str]:
        return uses[room].union(*(reach(one) for one in uses[room]))

    return {
        (room, one) for room in uses for one in uses[room] if not any(one in reach(two) for two in uses[room] - {one})
    }


@dataclass(frozen=True)
class Box:
    """A room on the picture: the middle of its box, and its top edge."""

    x: float
    y: float


def purpose(package: str, room: str) -> str:
    """The first sentence of a room's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / package / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    first = " ".join(text.split()).split(". ")[0].split(": ")[-1].rstrip(".")
    return first[:1].upper() + first[1:]


def placed(levels: Mapping[str, int], top: float) -> dict[str, Box]:
    """Each room on the row of its height, the highest first."""
    highest = max(levels.values())
    rows = [sorted(room for room in levels if levels[room] == highest - row) for row in range(highest + 1)]
    return {
        room: Box(WIDTH / 2 + (i - (len(row) - 1) / 2) * (BOX + GAP), top + r * ROW)
        for r, row in enumerate(rows)
        for i, room in enumerate(row)
    }


def arrow(a: Box, b: Box) -> str:
    """From a room to one that it uses: straight down to the next row, else around the rows between."""
    if b.y - a.y <= ROW:
        y, end = a.y + TALL, b.y - 3
        bend = (end - y) / 2
        return (
            f'<path d="M{a.x:.0f},{y:.0f} C{a.x:.0f},{y + bend:.0f} {b.x:.0f},{end - bend:.0f} {b.x:.0f},{end:.0f}"/>'
        )
    side = 1 if b.x >= a.x else -1
    x, end = a.x + side * BOX / 2, b.x + side * (BOX / 2 + 3)
    out = side * max(side * x, side * end) + side * (30 + (b.y - a.y) / 6)
    y, to = a.y + TALL / 2, b.y + TALL / 2
    return f'<path d="M{x:.0f},{y:.0f} C{out:.0f},{y:.0f} {out:.0f},{to:.0f} {end:.0f},{to:.0f}"/>'


def drawn(package: str, top: float) -> tuple[str, float]:
    """A package's heading, arrows and boxes from `top` down, and where they end."""
    uses = rooms(package)
    boxes = placed(heights(uses), top + 34)
    parts = [f'<text class="package" x="20" y="{top + 14:.0f}">{package}/</text>']
    parts += [arrow(boxes[room], boxes[one]) for room, one in sorted(direct(uses))]
    for room, box in boxes.items():
        left = box.x - BOX / 2
        parts.append(f'<rect x="{left:.0f}" y="{box.y:.0f}" width="{BOX}" height="{TALL}" rx="6"/>')
        parts.append(f'<text class="room" x="{box.x:.0f}" y="{box.y + 20:.0f}">{room}</text>')
        for i, line in enumerate(wrap(purpose(package, room), 36)[:3]):
            parts.append(f'<text x="{box.x:.0f}" y="{box.y + 37 + 14 * i:.0f}">{escape(line)}</text>')
    return "\n".join(parts), max(box.y for box in boxes.values()) + TALL + 40


STYLE = """
svg { background: #fff; font: 11.5px sans-serif; color-scheme: light dark }
text { fill: #333; text-anchor: middle } .room { font-weight: bold; font-size: 14px; fill: #000 }
.package { font-weight: bold; font-size: 18px; text-anchor: start; fill: #0072B2 }
rect { fill: #f3f6f9; stroke: #0072B2 }
path { fill: none; stroke: #888; marker-end: url(#tip) } marker path { fill: #888 }
@media (prefers-color-scheme: dark) {
  svg { background: #111 } text { fill: #ccc } .room { fill: #fff } .package { fill: #56B4E9 }
  rect { fill: #1c2430; stroke: #56B4E9 }
}
"""


def picture() -> str:
    """The whole picture as SVG."""
    body, top = [], 10.0
    for package in PACKAGES:
        part, top = drawn(package, top)
        body.append(part)
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top - 10:.0f}" role="img" '
        'aria-label="The rooms of dashboard, lab and engine, and which uses which">\n'
        f'<style>{STYLE}</style>\n<defs>{tip}<path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
