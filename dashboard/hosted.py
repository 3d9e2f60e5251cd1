"""The dashboard as `lab dashboard` serves it: for browsers that ask this very machine, by its own name.

A page of another site can have its host's name point to this machine, and so read what is served here as its own.
Streamlit keeps such pages from its scripts, but serves them files.
"""

from __future__ import annotations

import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from lab.ports import LOOPBACK

app = st.App("app.py", middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"])])
