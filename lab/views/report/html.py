"""HTML from Python values: everything is escaped unless it was made here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(value: object) -> Html:
    """As text that is safe in a page; `Html` stays as it is."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(parts: Iterable[object], by: str = "") -> Html:
    """The parts one after the other, escaped. by: HTML between them, which is not."""
    return Html(by.join(escape(part) for part in parts))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element. `_` in attribute names becomes `-`, a trailing one goes; attributes that are None are
    left out.
    """
    given = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items() if v is not None}
    written = "".join(f' {k}="{html.escape(str(v))}"' for k, v in given.items())
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> Html:
    """A table in a box that scrolls sideways by itself; the first `left` columns are words, the others
    numbers.
    """

    def cell(name: str, i: int, value: object, **more: object) -> Html:
        return tag(name, value, class_="number" if i >= left else None, **more)

    head = tag("tr", *(cell("th", i, h, scope="col") for i, h in enumerate(heads)))
    body = [
        tag("tr", *(cell("td", i, v) if i else tag("th", v, scope="row") for i, v in enumerate(row))) for row in rows
    ]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def details(summary: str, *content: object) -> Html:
    """A part of the page that opens with a click on `summary`."""
    return tag("details", tag("summary", summary), *content)


def paragraph(*content: object, class_: str | None = None) -> Html:
    """class_: of the style sheet."""
    return tag("p", *content, class_=class_)
