"""Where the browser is, and what keeps it quiet: it asks nobody for anything of its own."""

PATH = "/usr/bin/chromium"
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

POLL_MS = 100
"""How often a page is asked whether what a test waits for has come. By itself Playwright asks with every frame, and so
has a page drawn sixty times a second on which nothing happens.
"""
