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

    What nobody foresaw, such as tables that hold what no run writes, goes to the terminal with its traceback: its
    kind and words say nothing to who looks at a page.
    """
    try:
        yield
    except (UserError, RunCorrupt, RunNotFound, StoreError) as error:
        st.error(escaped(str(error)))
    except Exception:
        _LOG.exception("a page could not be shown")
        st.error(
            "The rest of this page cannot be shown. If it is about a run, its files hold something that no run writes."
            " Other runs and pages are not touched by that; the terminal says more.",
            icon=":material/error:",
        )


@contextmanager
def of_run(run_id: str) -> Iterator[None]:
    """The same for a part that draws one run: what nobody foresaw is told as damage of its files."""
    try:
        yield
    except (UserError, RunCorrupt, RunNotFound, StoreError):
        raise
    except Exception:
        _LOG.exception("run %s could not be drawn", run_id)
        st.error(
            f"The files of run {escaped(run_id)} hold something that no run writes, so the rest of it is not drawn."
            " Other runs are not touched by that; the terminal says more.",
            title="This run cannot be read",
        )
