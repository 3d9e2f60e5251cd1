"""A run as one HTML file: opened from disk, sent by mail, read without a network. It asks nobody for anything.

It may import the figures, the canvas timeline, `analysis` and `store`. Start with `write_report` below, then
`sections.py`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from plotly.offline import get_plotlyjs

from engine.job.rules import notes
from engine.recording.tables import Recording
from engine.whole_file import write_whole
from lab.views.report import predicted, proof, sections
from lab.views.report.html import Html, join, paragraph, tag
from lab.views.report.reportable import Reportable, is_simulated
from lab.views.report.words import DEFINITIONS, OF_REAL_RUNS, job_in_words
from lab.views.timeline.joiner import script
from lab.wording import command_line, fault_told, mesh_words

__all__ = ["Reportable", "report_html", "write_report"]

_HERE = Path(__file__).parent
# nothing may be fetched, from anywhere; plotly needs styles of its own and pictures it has made itself
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)
_PARTS = {
    "proof": "Against one process",
    "time": "Time",
    "predicted": "Predicted against measured",
    "grid": "Place",
    "memory": "Memory",
    "communication": "Communication",
    "steps": "Steps",
    "definitions": "Definitions",
}


def write_report(run: Reportable, path: Path, replay: Recording | None = None, cluster: str = "") -> Path:
    """Writes the report of a run, finished or not, to `path` and returns it. An old file is replaced in one
    step. See `report_html`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, report_html(run, replay, cluster))
    return path


def report_html(run: Reportable, replay: Recording | None = None, cluster: str = "") -> str:
    """The whole page: text and tables first, so that they can be read while the script with plotly.js still
    loads.

    replay: of the run, on the described cluster of the name `cluster`; laid beside what was measured.
    """
    compared = Html("") if replay is None else predicted.predicted_section(run, replay, cluster)
    head = join(
        [
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            Html('<link rel="icon" href="data:,">'),
            tag("title", f"Shardlab: {run.id}"),
            Html(f"<style>{_asset('style.css')}</style>"),
        ]
    )
    plotly, ours = f"<script>{get_plotlyjs()}</script>", f"<script>{_asset('page.js')}</script>"
    scripts = Html(f"<script>{script('report.js')}</script>{plotly}{ours}")
    skip = tag("a", "Skip to the report", href="#report", class_="skip")
    body = join(
        [skip, _header(run, bool(compared)), tag("main", *_main(run, compared), id="report"), _footer(run), scripts]
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _header(run: Reportable, compared: bool) -> Html:
    plan, bug, by_hand = run.job.plan, run.job.fault.bug, bool(getattr(run, "by_hand", False))
    command = command_line(
        run.job,
        command="lab simulate" if is_simulated(run) else "lab run",
        program=f"runs/{run.id}/program.txt" if by_hand else "",
    )
    shape = mesh_words(plan)
    absent = {"proof": not proof.has_microscope(run), "predicted": not compared, "steps": is_simulated(run)}
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title in _PARTS.items() if not absent.get(name)]
    return tag(
        "header",
        tag("h1", f"{shape}{f', ZeRO-{plan.zero}' if run.job.effective_zero else ''}"),
        paragraph(job_in_words(run.job, is_simulated(run), by_hand)),
        tag("pre", command, tabindex=0, aria_label="Command that runs this job again"),
        *(paragraph(note, class_="faint") for note in notes(run.job)),
        *([paragraph(tag("strong", fault_told(bug)))] if bug else []),
        proof.parity_badge(run),
        proof.key_numbers(run),
        tag("nav", tag("ul", *links), aria_label="Parts of this report"),
    )


def _main(run: Reportable, compared: Html) -> list[Html]:
    return [
        Html("<noscript><p>The figures need JavaScript; every number is in the tables too.</p></noscript>"),
        proof.proof_section(run),
        sections.time_section(run),
        compared,
        sections.grid_section(run),
        sections.memory_section(run),
        sections.communication_section(run),
        sections.steps_section(run),
        _definitions(is_simulated(run)),
    ]


def _definitions(simulated: bool) -> Html:
    shown = [(name, words) for name, words in DEFINITIONS if not (simulated and name in OF_REAL_RUNS)]
    pairs = [part for name, words in shown for part in (tag("dt", name), tag("dd", words))]
    title = tag("h2", "Definitions", id="definitions")
    return tag("section", title, tag("dl", *pairs, class_="words"), aria_labelledby="definitions")


def _footer(run: Reportable) -> Html:
    info = run.info
    with_what = f"{info.backend or 'no backend'} on {info.device or 'no device'}"
    where = f"Run {run.id}, made {info.created} with {with_what}"
    reason = f" ({info.backend_reason})" if info.backend_reason else ""
    versions = ", ".join(f"{name} {value}" for name, value in info.environment.items())
    started = tag("p", "Started by ", tag("code", shlex.join(info.command)), ".") if info.command else Html("")
    return tag("footer", paragraph(f"{where}{reason}. {versions}."), started)
