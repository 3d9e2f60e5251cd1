"""What the door says, in pages that need nothing else: no script, no file, no other host."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Shardlab</title>
<link rel="icon" href="data:,">
{head}
<style>
:root {{ color-scheme: light dark; --back: #fff; --text: #1b2026; --box: #f3f5f7; }}
@media (prefers-color-scheme: dark) {{ :root {{ --back: #14171c; --text: #e8ebef; --box: #20262e; }} }}
body {{ margin: 0; background: var(--back); color: var(--text); font: 1.05rem/1.6 system-ui, sans-serif; }}
main {{ max-width: 38rem; margin: 12vh auto 0; padding: 0 1.5rem; }}
h1 {{ font-size: 1.6rem; line-height: 1.3; }}
code {{ background: var(--box); padding: .1em .35em; border-radius: .25em; overflow-wrap: anywhere; }}
a {{ color: inherit; }}
</style>
</head>
<body><main><h1>{title}</h1>
{body}
</main></body>
</html>
"""


def _page(status: int, title: str, body: str, head: str = "") -> HTMLResponse:
    words = _PAGE.format(title=escape(title), body=body, head=head)
    return HTMLResponse(words, status, {"Cache-Control": "no-store"})


def asks_for_token() -> HTMLResponse:
    return _page(
        403,
        "This dashboard asks for its token",
        "<p>Go to the terminal where <code>lab dashboard</code> runs. Copy the whole address that it printed, with"
        " <code>?token=…</code> at its end, and paste it into the address bar of this browser.</p>"
        "<p>Each start of the dashboard makes a new token: an address of an earlier start does not work any more.</p>",
    )


def foreign() -> HTMLResponse:
    return _page(
        403,
        "This dashboard answers no page of another address",
        "<p>Another web page asked for this, from another host or port. Open the dashboard in a window of its own:"
        " paste the address that <code>lab dashboard</code> printed in the terminal into the address bar.</p>",
    )


def other_host() -> HTMLResponse:
    return _page(
        400,
        "This dashboard has another address",
        "<p>Invalid host: it answers to <code>127.0.0.1</code> and <code>localhost</code> only. Paste the address that"
        " <code>lab dashboard</code> printed in the terminal into the address bar.</p>",
    )


def once_more(address: str) -> HTMLResponse:
    """Has the browser ask again, from a page that is this dashboard's own. address: below this host."""
    there = escape(address)
    return _page(
        200,
        "The dashboard opens",
        f'<p>If it does not, <a href="{there}">open it</a>.</p>',
        f'<meta http-equiv="refresh" content="0; url={there}">',
    )
