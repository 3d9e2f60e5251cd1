"""Makes the pictures of the README from a real run: `python docs/pictures.py` (needs Chromium and the test extras)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import lab

IMAGES = Path(__file__).parent / "images"
FIGURES = ("timeline", "grid", "memory", "communication")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    lab.run(dp=2, tp=2, pp=2, zero=1)  # the first run pays for starting up
    run = lab.run(dp=2, tp=2, pp=2, zero=1, steps=5)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = run.report(Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme=scheme)
            page.goto(report.as_uri())
            for name in FIGURES:
                figure = page.locator(f"figure:has(#plot-{name})")
                figure.scroll_into_view_if_needed()
                figure.locator(".main-svg, .sl-plot canvas").first.wait_for()
                page.wait_for_timeout(1500)  # the 3D grid draws after its svg is there
                figure.screenshot(path=IMAGES / f"{name}-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main()
