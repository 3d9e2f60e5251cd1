"""The dashboard is for this machine alone, and asks nobody about it."""

from __future__ import annotations

import pytest
from streamlit import net_util
from streamlit.web.server.server_util import is_url_from_allowed_origins

from dashboard.server.serve import ask_nobody


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
