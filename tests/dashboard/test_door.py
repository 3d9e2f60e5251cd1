"""Who gets into the dashboard, and who is turned away, over what a browser says of each request."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from dashboard.server.door import Door

HERE = "http://127.0.0.1:8501"
TOKEN = "a-token_of-24-bytes"
PATHS = ["/", "/compare?runs=a,b", "/static/js/index.js", "/media/1.png", "/_stcore/health", "/_stcore/host-config"]
EMBEDDED = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
FRAMED = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
FOLLOWED = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


async def inside(request: Any) -> PlainTextResponse:
    return PlainTextResponse("inside")


async def line(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("inside")
    await websocket.close()


def visitor(token: str | None = TOKEN, base: str = HERE) -> TestClient:
    routes = [WebSocketRoute("/_stcore/stream", line), Route("/{path:path}", inside, methods=["GET", "PUT"])]
    app = Starlette(routes=routes, middleware=[Middleware(Door, token=token)])
    return TestClient(app, base_url=base, follow_redirects=False)


def come_in(client: TestClient, token: str = TOKEN) -> TestClient:
    client.get("/", params={"token": token})
    return client


def line_opens(client: TestClient, **headers: str) -> bool:
    try:
        with client.websocket_connect(
            f"ws://{client.base_url.netloc.decode()}/_stcore/stream", headers=headers
        ) as opened:
            return opened.receive_text() == "inside"
    except WebSocketDisconnect:
        return False


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_served_and_a_page_says_how_to_get_in(path: str) -> None:
    answer = visitor().get(path)
    assert answer.status_code == 403 and "inside" not in answer.text
    assert "paste it into the address bar" in answer.text and "lab dashboard" in answer.text


def test_without_the_token_the_line_to_the_scripts_stays_closed() -> None:
    assert not line_opens(visitor(), Origin=HERE)
    assert not line_opens(visitor())
    assert line_opens(come_in(visitor()), Origin=HERE)


def test_the_printed_address_gives_a_cookie_for_this_port_and_leads_to_the_address_without_the_token() -> None:
    client = visitor()
    answer = client.get(f"/compare?runs=a,b%20c&token={TOKEN}&step=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/compare?runs=a,b%20c&step=1")
    name, *rest = answer.headers["set-cookie"].split("; ")
    assert "8501" in name.partition("=")[0]
    assert {"httponly", "samesite=strict", "path=/"} <= {one.lower() for one in rest}
    assert not any(one.lower().startswith(("expires", "max-age")) for one in rest), "it ends with the browser"
    for path in PATHS:
        assert client.get(path).text == "inside"


@pytest.mark.parametrize("wrong", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü", "%00"])
def test_a_wrong_token_is_none(wrong: str) -> None:
    client = visitor()
    assert client.get(f"/?token={wrong}").status_code == 403 and not client.cookies
    assert client.get("/", headers={"Cookie": f"shardlab-dashboard-8501={wrong}".encode()}).status_code == 403


def test_an_old_address_is_no_trouble_for_who_is_in() -> None:
    answer = come_in(visitor()).get("/pipeline?run=a&token=old")
    assert (answer.status_code, answer.headers["location"]) == (303, "/pipeline?run=a")
    assert "set-cookie" not in answer.headers


def test_the_cookie_of_one_port_opens_no_other() -> None:
    one, other = come_in(visitor("one")), come_in(visitor("other", "http://127.0.0.1:8502"), "other")
    other.cookies.update(one.cookies)  # as browsers do: a cookie of a host goes to each of its ports
    assert other.get("/").text == "inside"
    only = visitor("other", "http://127.0.0.1:8502")
    only.cookies.update(one.cookies)
    assert only.get("/").status_code == 403


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example", "/\\evil.example", "/%5Cevil.example/x"])
def test_no_address_leads_from_here_to_another_host(path: str) -> None:
    client = visitor()
    answer = client.get(f"{HERE}{path}?token={TOKEN}")
    assert answer.headers["location"].startswith("/") and answer.headers["location"][1:2] not in ("/", "\\")
    page = client.get(f"{HERE}{path}", headers={"Sec-Fetch-Site": "cross-site"} | FOLLOWED).text
    assert "url=//" not in page and "url=/\\" not in page


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:9999", "http://127.0.0.1", "http://localhost:8501",
               "https://127.0.0.1:8501", "http://127.0.0.1:8501.evil.example", "null"]
)  # fmt: skip
@pytest.mark.parametrize("token", [TOKEN, None])
def test_a_page_of_another_host_or_port_is_turned_away_even_with_the_cookie(origin: str, token: str | None) -> None:
    client = come_in(visitor(token))
    assert line_opens(client, Origin=HERE) and not line_opens(client, Origin=origin)
    assert client.get("/", headers={"Origin": HERE}).text == "inside"
    for method in ("GET", "PUT"):
        answer = client.request(method, "/_stcore/upload_file/a/b", headers={"Origin": origin})
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
@pytest.mark.parametrize("how", [EMBEDDED, FRAMED, {}])
def test_another_page_can_neither_embed_nor_frame_what_is_here(site: str, how: dict[str, str]) -> None:
    for client in (come_in(visitor()), visitor(None)):
        answer = client.get("/media/1.png", headers={"Sec-Fetch-Site": site} | how)
        assert answer.status_code == 403 and "inside" not in answer.text


def test_every_answer_forbids_frames_and_says_nothing_to_other_sites() -> None:
    client = visitor()
    answers = [client.get("/"), client.get(f"/?token={TOKEN}"), client.get("/"), client.get("/media/1.png")]
    assert [one.status_code for one in answers] == [403, 303, 200, 200]
    for one in answers:
        assert "frame-ancestors 'none'" in one.headers["content-security-policy"]
        assert one.headers["x-frame-options"] == "DENY"
        assert one.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in one.headers


def test_a_link_on_a_page_of_another_port_opens_the_dashboard_in_a_window_of_its_own() -> None:
    headers = {"Sec-Fetch-Site": "same-site"} | FOLLOWED
    assert come_in(visitor()).get("/", headers=headers).text == "inside"
    assert visitor().get("/", headers=headers).status_code == 403


def test_a_visit_from_another_site_asks_once_more_from_here_since_its_strict_cookie_stays_behind() -> None:
    there = f"/compare?runs=a,b&token={TOKEN}"
    answer = visitor().get(there, headers={"Sec-Fetch-Site": "cross-site"} | FOLLOWED)
    assert answer.status_code == 200 and "set-cookie" not in answer.headers
    assert f'content="0; url={there.replace("&", "&amp;")}"' in answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8501", "127.0.0.1.evil.example", "0.0.0.0:8501", ""])
def test_another_name_that_leads_to_this_machine_is_refused(host: str) -> None:
    for client in (come_in(visitor()), visitor(None)):
        assert client.get("/", headers={"Host": host}).status_code == 400
        assert not line_opens(client, Host=host, Origin=f"http://{host}")


def test_a_tunnel_with_another_port_at_the_end_of_the_browser_works() -> None:
    client = come_in(visitor(base="http://localhost:9000"))
    assert client.get("/").text == "inside" and line_opens(client, Origin="http://localhost:9000")


def test_without_a_token_everybody_on_this_machine_is_let_in() -> None:
    client = visitor(None)
    assert client.get("/?token=any").text == "inside" and line_opens(client, Origin=HERE)
