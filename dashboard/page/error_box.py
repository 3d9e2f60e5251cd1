"""What a page says when something is wrong: one sentence. A traceback helps nobody who looks at a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from dashboard.page.render import escaped
from engine.job.errors import UserError
from lab.store.stored_run import RunCorrupt, RunNotFound, StoreError

_LOG = logging.getLogger(__name__)


@contextmanager
def in_words() -> Iterator[None]:
    """Ends what it surrounds, a page or a fragment, with a sentence instead of an exception.

    What nobody foresaw, such as a run whose tables hold what no run writes, is told by its kind; the traceback goes to
    the terminal.
    """
    try:
        yield
    except (UserError, RunCorrupt, RunNotFound, StoreError) as error:
        st.error(escaped(str(error)))
    except Exception as error:
        _LOG.exception("a page could not be shown")
        what = f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__
        st.error(
            f"The rest of this page cannot be shown: {escaped(what)}. If it is about a run, its files hold something"
            " that no run writes. Other runs and pages are not touched by that; the terminal says more.",
            icon=":material/error:",
        )
