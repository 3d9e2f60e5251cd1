"""The dashboard is for this machine alone: what it listens on, whom it answers, what its pages ask for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from dashboard.server.browser import for_browser
from tests.browser.dashboard import Server, Window

Open = Callable[..., Window]
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def answer(server: Server, path: str, *, known: bool = True, **headers: str) -> tuple[int, str]:
    """The status and the beginning of what the server answers to these very words, which no library has tidied.

    known: from somebody who has shown the token.
    """
    cookie = {"Cookie": f"shardlab-dashboard-{server.port}={server.token}"} if known else {}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in (headers | cookie).items())]
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
        line.sendall("\r\n".join([*lines, "", ""]).encode())
        found = line.recv(65536).decode(errors="replace")
    return int(found.split()[1]), found


def test_it_listens_on_loopback_only(dashboard: Server) -> None:
    here = psutil.Process(dashboard.process.pid)
    heard = [one for each in (here, *here.children(recursive=True)) for one in each.net_connections("inet")]
    listening = [one.laddr for one in heard if one.status == psutil.CONN_LISTEN]
    assert [(address.ip, address.port) for address in listening] == [("127.0.0.1", dashboard.port)]


@pytest.mark.parametrize("path", ["/", "/pipeline", "/_stcore/health", "/_stcore/host-config"])
def test_only_its_own_host_is_answered(dashboard: Server, path: str) -> None:
    own = f"127.0.0.1:{dashboard.port}"
    assert answer(dashboard, path, Host=own)[0] == 200
    for other in ("evil.example", f"evil.example:{dashboard.port}", "127.0.0.1.evil.example"):
        assert answer(dashboard, path, Host=other)[0] == 400
    assert answer(dashboard, path, Host=own, known=False)[0] == 403


@pytest.mark.parametrize("path", ["/media/1.png", "/static/js/index.js", "/_stcore/metrics", "/component/x", "/x"])
def test_who_has_no_token_gets_no_file_either(dashboard: Server, path: str) -> None:
    own = f"127.0.0.1:{dashboard.port}"
    assert answer(dashboard, path, Host=own)[0] != 403 == answer(dashboard, path, Host=own, known=False)[0]


def test_a_window_comes_in_by_the_printed_address_or_the_private_file_and_stays(
    dashboard: Server, window: Open, tmp_path: Path
) -> None:
    page = window(dashboard, comes_in=False)
    with for_browser(dashboard.printed, tmp_path, dashboard.port) as opened:
        page.page.goto(opened)
        page.page.wait_for_url(dashboard.url)
        page.ready()
    page.page.goto(dashboard.printed)
    page.ready()
    assert page.page.url == dashboard.url, "the token is out of sight, and out of what is copied from here"
    page.page.reload()
    page.ready()
    page.heading("Runs").wait_for()
    page.asked.clear()  # the file is on no host


def test_a_window_without_the_token_is_told_in_words_how_to_come_in(dashboard: Server, window: Open) -> None:
    page = window(dashboard, comes_in=False)
    found = page.page.goto(f"{dashboard.url}compare")
    assert found is not None and found.status == 403
    page.page.get_by_role("heading", name="asks for its token").wait_for()
    page.page.get_by_text("Copy the whole address that it printed").wait_for()
    assert page.barriers() == []
    page.complaints.clear()  # the browser's own word about the 403


TRIES = """async (there) => {
    const ended = (make, ok, no) => new Promise((done) => { const made = make(); made[ok] = () => done("in");
        made[no] = () => done("out"); });
    const added = (tag, set) => () => document.body.appendChild(Object.assign(document.createElement(tag), set));
    const framed = (frame) => { try { return frame.contentDocument ? "in" : "out"; } catch { return "out"; } };
    const frame = added("iframe", { src: there })();
    await new Promise((done) => { frame.onload = done; });
    const line = () => new WebSocket(there.replace("http", "ws") + "_stcore/stream");
    return { line: await ended(line, "onopen", "onerror"), frame: framed(frame),
        picture: await ended(added("img", { src: there + "favicon.png" }), "onload", "onerror"),
        script: await ended(added("script", { src: there + "_stcore/health" }), "onload", "onerror"),
        words: await fetch(there, { credentials: "include" }).then(() => "in", () => "out") };
}"""


def test_a_page_on_another_port_gets_nothing_even_in_the_browser_of_who_is_in(dashboard: Server, window: Open) -> None:
    page = window(dashboard)
    page.open()
    other = HTTPServer(("127.0.0.1", 0), _Empty)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        page.page.goto(f"http://127.0.0.1:{other.server_port}/")
        found = page.page.evaluate(TRIES, dashboard.url)
        assert found == dict.fromkeys(found, "out")
        [frame] = [one for one in page.page.frames if one.parent_frame]
        assert "Shardlab" not in frame.content()
    finally:
        other.shutdown()
        other.server_close()
    page.complaints.clear()  # of the page that was turned away


class _Empty(BaseHTTPRequestHandler):
    """A page of somebody else's."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><body></body>")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_page_of_another_site_cannot_open_the_line_to_the_scripts(dashboard: Server) -> None:
    own, path = f"127.0.0.1:{dashboard.port}", "/_stcore/stream"
    assert answer(dashboard, path, Host=own, Origin=f"http://{own}", **UPGRADE)[0] == 101
    for other in ("http://evil.example", "http://127.0.0.1:9999", "http://localhost:9999"):
        assert answer(dashboard, path, Host=own, Origin=other, **UPGRADE)[0] == 403
    assert answer(dashboard, path, Host=own, Origin=f"http://{own}", known=False, **UPGRADE)[0] == 403
    assert answer(dashboard, path, Host="evil.example", Origin="http://evil.example", **UPGRADE)[0] in (400, 403)


@pytest.mark.parametrize(
    "path",
    [
        "/runs?run=../../etc/passwd",
        "/../../../../etc/passwd",
        "/static/../../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
    ],
)
def test_no_path_leads_to_files_of_this_machine(dashboard: Server, path: str) -> None:
    _, found = answer(dashboard, path, Host=f"127.0.0.1:{dashboard.port}")
    assert "root:" not in found


def test_a_link_cannot_lead_out_of_the_store(dashboard: Server, window: Open) -> None:
    secret = dashboard.runs.parent / "secret"
    secret.mkdir()
    (secret / "run.json").write_text("top secret", encoding="utf-8")
    page = window(dashboard)
    for path, wished in (("pipeline", "../secret"), ("live", str(secret)), ("compare", "../secret,../x")):
        page.open(path, run=wished, live=wished, runs=wished)
        words = page.page.locator("body").inner_text()
        assert "top secret" not in words and "damaged" not in words and "Traceback" not in words
