"""The dashboard as `lab dashboard` serves it: for browsers that ask this very machine, by its own name.

A page of another site can have its host's name point to this machine, and so read what is served here as its own.
Streamlit keeps such pages from its scripts, but serves them files.
"""

from __future__ import annotations

import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from dashboard.server.deferred_warmup import AfterFirstVisit
from lab.cli.ports import LOOPBACK


def _load_torch() -> None:
    """The first preview of a plan would wait for it; loaded while the first page is drawn, it would take a core."""
    import engine.prediction.op_templates.meta_templates  # noqa: F401


MIDDLEWARE = [
    Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"]),
    Middleware(AfterFirstVisit, do=_load_torch),
]
app = st.App("app.py", middleware=MIDDLEWARE)
