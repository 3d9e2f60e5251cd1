"""The dashboard as `lab dashboard` serves it: Streamlit's pages and files, behind the door."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from dashboard.server.deferred_warmup import AfterFirstVisit
from dashboard.server.door import Door

SCRIPT = Path(__file__).parents[1] / "app.py"


def application(token: str | None) -> st.App:
    """token: what a visitor has to show; None for nothing."""
    return st.App(SCRIPT, middleware=[Middleware(Door, token=token), Middleware(AfterFirstVisit, do=_load_torch)])


def _load_torch() -> None:
    """The first preview of a plan would wait for it; loaded while the first page is drawn, it would take a core."""
    import engine.prediction.op_templates.meta_templates  # noqa: F401
