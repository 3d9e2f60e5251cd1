"""A page with two timelines of one group, and what tests do on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from playwright.sync_api import Page

from engine.job.job import Job

CUBE = Job.from_options(dp=2, tp=2, pp=2, zero=1)
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Timelines</title></head>
<body><main><h1>Timelines</h1><div id="one"></div><div id="two"></div></main>
<script type="application/json" id="data">{data}</script>
<script type="module">{module}
const data = JSON.parse(document.getElementById("data").textContent);
window.data = data;
window.load = (text) =>
  import(URL.createObjectURL(new Blob([text], {{ type: "text/javascript" }}))).then((found) => found.default);
window.heard = {{ select: [], window: [], cursor: [] }};
const listeners = {{
  onSelect: (chosen) => heard.select.push(chosen),
  onWindow: (window) => heard.window.push(window),
  onCursor: (time) => heard.cursor.push(time),
}};
window.one = mount(document.getElementById("one"), {{ data: data[0], group: "pair", label: "first", ...listeners }});
window.two = mount(document.getElementById("two"), {{ data: data[1], group: "pair", label: "second" }});
</script></body></html>"""

Open = Callable[..., Page]


def settled(page: Page) -> None:
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def heard(page: Page, what: str) -> list[Any]:
    found: list[Any] = page.evaluate(f"heard.{what}")
    return found


def press(page: Page, *keys: str, on: str = "#one") -> None:
    page.locator(f"{on} .sl-plot").focus()
    for key in keys:
        page.keyboard.press(key)


def said(page: Page, of: str = "#one") -> str:
    return page.locator(f"{of} .sl-said").inner_text()


def picture(page: Page, of: str = "#one") -> str:
    settled(page)
    found: str = page.locator(f"{of} canvas").first.evaluate("canvas => canvas.toDataURL()")
    return found


def column(data: dict[str, Any], name: str, kind: str) -> Any:
    return np.frombuffer(data["layers"][0]["columns"][name]["data"], kind)
