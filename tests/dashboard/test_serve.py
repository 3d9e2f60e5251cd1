"""The dashboard is for this machine alone, and asks nobody about it."""

from __future__ import annotations

import stat
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from streamlit import net_util
from streamlit.web.server.server_util import is_url_from_allowed_origins

from dashboard.server import browser
from dashboard.server.browser import for_browser
from dashboard.server.serve import Address, ask_nobody


def test_a_page_from_elsewhere_is_turned_away_without_asking_a_web_service(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(net_util, "_make_blocking_http_get", lambda url, timeout=5.0: asked.append(url))
    for name in ("get_external_ip", "get_internal_ip"):
        monkeypatch.setattr(net_util, name, getattr(net_util, name))  # put back afterwards
    assert not is_url_from_allowed_origins("http://elsewhere.example") and asked, "Streamlit alone asks"
    asked.clear()
    ask_nobody()
    assert not is_url_from_allowed_origins("http://elsewhere.example") and not asked
    assert is_url_from_allowed_origins("http://localhost:8501")


def test_what_the_browser_is_opened_with_can_be_read_by_its_owner_alone_and_does_not_hold_the_token(
    tmp_path: Path,
) -> None:
    address = Address(8501, "secret")
    left = tmp_path / "runs" / ".dashboard-8501.html"
    left.parent.mkdir()
    left.write_text("of a dashboard that was killed")
    left.chmod(0o644)
    with for_browser(address.url, left.parent, 8501) as opened:
        assert "secret" not in opened
        file = Path(unquote(urlparse(opened).path))
        assert address.url in file.read_text() and file == left
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()


def test_a_store_that_cannot_be_written_does_not_keep_the_browser_from_opening(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with for_browser("http://127.0.0.1:8501/?token=secret", tmp_path / "file" / "runs", 8501) as opened:
        file = Path(unquote(urlparse(opened).path))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.exists() and not file.parent.exists()


def test_a_browser_of_windows_gets_the_address_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser.platform, "release", lambda: "6.6.87-microsoft-standard-WSL2")
    with for_browser("http://127.0.0.1:8501/?token=secret", tmp_path, 8501) as opened:
        assert opened == "http://127.0.0.1:8501/?token=secret"


def test_the_words_at_the_start_say_what_the_token_is_and_that_there_is_none() -> None:
    assert "http://127.0.0.1:8501/?token=secret\n" in Address(8501, "secret").words()
    without = Address(8501, None)
    assert without.url == "http://127.0.0.1:8501/" and "Everybody on this machine" in without.words()
