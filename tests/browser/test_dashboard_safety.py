"""The dashboard is for this machine alone: what it listens on, whom it answers, what its pages ask for."""

from __future__ import annotations

import socket
from collections.abc import Callable

import psutil
import pytest

from tests.browser.dashboard import Server, Window

Open = Callable[..., Window]
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def answer(server: Server, path: str, **headers: str) -> tuple[int, str]:
    """The status and the beginning of what the server answers to these very words, which no library has tidied."""
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
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


def test_a_page_of_another_site_cannot_open_the_line_to_the_scripts(dashboard: Server) -> None:
    own, path = f"127.0.0.1:{dashboard.port}", "/_stcore/stream"
    assert answer(dashboard, path, Host=own, Origin=f"http://{own}", **UPGRADE)[0] == 101
    assert answer(dashboard, path, Host=own, Origin="http://evil.example", **UPGRADE)[0] == 403
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
