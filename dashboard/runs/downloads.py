"""A run to take away: the report, traces for other tools, tables, the job file. Made when asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import streamlit as st

from dashboard.data import cached_runs
from lab.facade import Run
from lab.views.exports import FORMATS, export_bytes

_NAMES = {
    "perfetto": "Trace for Perfetto (JSON)",
    "hta": "Traces for Holistic Trace Analysis (zip)",
    "csv": "Tables as CSV (zip)",
    "parquet": "Tables as Parquet (zip)",
}
_ENDS = {"perfetto": ".perfetto.json", "hta": "-hta.zip", "csv": "-csv.zip", "parquet": "-parquet.zip"}


def downloads(key: cached_runs.Key, run: Run, cluster: str) -> None:
    """A button that opens the list. cluster: "" for measured times."""
    with st.popover("Download", icon=":material/download:"):
        name = f"{key[1]}-on-{cluster}" if cluster else key[1]
        _button("Report (one HTML file)", f"{name}.html", "text/html", lambda: _report(run))
        for form in FORMATS:
            _button(_NAMES[form], name + _ENDS[form], None, partial(_exported, run, form))
        _button("Job file (TOML)", f"{name}.toml", "text/plain", lambda: run.job.to_toml().encode())
        st.caption("Figures have a camera that saves them as SVG, timelines a button for PNG.")


def _button(label: str, name: str, mime: str | None, make: Callable[[], bytes]) -> None:
    st.download_button(label, make, name, mime, on_click="ignore", type="tertiary", icon=":material/download:")


def _exported(run: Run, form: str) -> bytes:
    return export_bytes(run, form)[1]


def _report(run: Run) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return run.report(Path(folder) / "report.html").read_bytes()
