"""What the explorer says of what it shows, in words."""

from __future__ import annotations

from typing import Any

from engine.processes.launch import RunCancelled
from lab.analysis.comparison.lines import bubble, step_seconds
from lab.facade import Run
from lab.running.execution import Progress
from lab.wording import percent, seconds

NOT_RUN = {"verdict": "unknown", "text": "not run yet"}


def badge(run: Run | None) -> dict[str, str]:
    """Whether the run equals one process: {verdict: equal, differs or unknown, text}."""
    if run is None:
        return NOT_RUN
    found = run.proof.badge
    verdict = "unknown" if found.state == "none" else "equal" if found.passed else "differs"
    return {"verdict": verdict, "text": found.words if found.state == "none" else f"{found.mark} {found.words}"}


def headline(shown: Run, kind: str, cluster: str) -> str:
    """Step time and bubble of what is shown. kind: measured, replayed or predicted."""
    where = "Measured on this machine" if kind == "measured" else f"{kind.capitalize()} on {cluster}"
    facts = [f"{seconds(step_seconds(shown))} a step"]
    found, formula = bubble(shown), shown.summary["bubble"]["formula"]
    if found is not None and shown.job.plan.pp > 1:
        facts.append(f"bubble {percent(found)}" + ("" if formula is None else f", formula {percent(formula)}"))
    return f"{where}: {', '.join(facts)}."


def progress(news: Progress) -> dict[str, Any]:
    """{progress: 0 to 1, headline} of a run under way."""
    done = 0 if news.step is None else news.step + 1
    words = {
        "starting": f"Starting {news.world_size} real processes…",
        "ready": f"{news.world_size} processes connected, training…",
        "step": f"Step {done} of {news.steps} done: loss {news.loss:.3f}",
        "finishing": "Comparing with one process…",
    }[news.phase]
    return {"progress": (done + 0.5) / (news.steps + 1), "headline": words}


def ending(error: Exception) -> str:
    """Why there is no measurement."""
    if isinstance(error, RunCancelled):
        return "Cancelled: what stands here is the prediction."
    return f"The run failed: {error_words(error)}"


def undrawn(error: Exception) -> str:
    """Why nothing new is shown."""
    return f"This cannot be shown: {error_words(error)}"


def error_words(error: BaseException) -> str:
    """What an error says, in one line; of one that says nothing its kind."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # a learner's own error may not even say what it is
        lines = []
    return lines[0] if lines and isinstance(error, Exception) else " ".join([type(error).__name__, *lines[:1]])
