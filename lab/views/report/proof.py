"""The top of a report: whether the run is right, how it ended, and its most telling numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lab.analysis import rank_name, typical_step
from lab.verdict import RULE_IN_WORDS, verdict_of
from lab.views import figures
from lab.views.report.html import Html, details, join, paragraph, table, tag
from lab.views.report.plots import plot
from lab.views.report.reportable import Reportable, is_simulated
from lab.wording import axis_name, loss_words, nbytes, percent, seconds


def parity_badge(run: Reportable) -> Html:
    """Whether the run equals one process, with the numbers it rests on and their limits; else how it ended."""
    if is_simulated(run):
        return simulated_badge(run.summary)
    verdict = verdict_of(run.summary.get("parity") or {})
    parts = [] if run.status == "finished" else [_ending(run)]
    if verdict.badge.state == "none":
        what = "Not compared with one process"
        why = "parity was switched off" if run.status == "finished" else "the run did not get that far"
        parts.append(tag("div", tag("strong", what), paragraph(f"because {why}."), class_="badge none"))
        return join(parts)
    lines = [tag("strong", verdict.badge.title), paragraph(verdict.why)]
    first = verdict.microscope
    numbers = tag("strong", f"{first[0].upper()}{first[1:]}. ") if first else Html("")
    lines.append(paragraph(numbers, verdict.numbers))
    return join([*parts, tag("div", *lines, class_=f"badge {verdict.badge.tone}")])


def proof_section(run: Reportable) -> Html:
    """The microscope behind the badge; nothing for a run of which no distances by step are kept."""
    if not has_microscope(run):
        return Html("")
    heads = ("quantity", "Δ", "allowed", "rounding floor", "where it is closest to its limit, or furthest beyond")
    rows = [(one.name, one.off_by, one.limit, one.floor, one.where) for one in verdict_of(run.summary["parity"]).judged]
    title = tag("h2", "Against one process, step by step", id="proof")
    drawn = plot(
        "microscope",
        lambda theme: figures.verdict(run, theme=theme),
        RULE_IN_WORDS,
        details("The numbers that the verdict rests on", table("What the verdict rests on", heads, rows)),
    )
    return tag("section", title, drawn, aria_labelledby="proof")


def has_microscope(run: Reportable) -> bool:
    return getattr(run, "distances", None) is not None and not is_simulated(run)


def simulated_badge(summary: Mapping[str, Any]) -> Html:
    """What a simulation says instead: nothing ran, how long a step takes, whether it fits."""
    words = "Nothing was trained: operations, bytes and memory are counted, times are what the cluster describes."
    fits, worst = summary.get("fits"), summary["memory"].get("worst")
    if worst is not None:
        verdict = "it fits" if fits else f"it does not fit, from its {worst['breaks']} on"
        needs = f"{nbytes(worst['total_peak'])} of {nbytes(worst['device_bytes'])}"
        words += f" Rank {worst['rank']} needs {needs}: {verdict}."
    look = f"badge {'bad' if fits is False else 'none'}"
    what = f"≈ Simulated on {summary.get('cluster') or 'a described cluster'}"
    return tag("div", tag("strong", what), paragraph(words), class_=look)


def _ending(run: Reportable) -> Html:
    done = len(run.summary.get("steps") or [])
    ending = _ENDINGS.get(run.status, f"is {run.status}")
    text = f"This run {ending} after {done} of {run.job.training.steps} steps"
    message = [tag("pre", run.message)] if run.message else []
    return tag("div", tag("strong", text), *message, class_="badge bad")


_ENDINGS = {
    "queued": "was still waiting for its turn",
    "failed": "failed",
    "stopped": "was stopped",
    "killed": "was killed",
    "running": "was still going",
}


def _small(value: Any) -> str:
    return "unknown" if value is None else "0" if value == 0 else f"{value:.1e}"


def key_numbers(run: Reportable) -> Html:
    """The numbers to see first."""
    tiles = [tag("div", tag("dt", name), tag("dd", value, tag("small", note))) for name, value, note in _numbers(run)]
    return tag("dl", *tiles, class_="numbers") if tiles else Html("")


def _numbers(run: Reportable) -> Iterator[tuple[str, str, str]]:
    summary = run.summary
    steps, bubble = summary.get("steps") or [], summary.get("bubble") or {}
    if is_simulated(run):
        yield from _simulated_numbers(summary)
    elif steps:
        shown = typical_step(run.recording)
        typical = next((step for step in steps if step["step"] == shown), steps[-1])
        yield "Loss", loss_words(steps[-1]["loss"]), f"after {len(steps)} steps, from {loss_words(steps[0]['loss'])}"
        yield (
            "Step time",
            seconds(typical["seconds"]),
            f"step {typical['step']}; {typical['tokens_per_second']:,.0f} tokens/s",
        )
    kinds = [kind for kind in ("measured", "replayed", "formula") if bubble.get(kind) is not None]
    if kinds and kinds[0] != "formula":
        known = [f"{kind} {percent(bubble[kind])}" for kind in kinds[1:]]
        yield "Bubble (idle ÷ total)", percent(bubble[kinds[0]]), ", ".join(known)
    if peaks := summary["memory"]["per_rank"]:
        most = max(peaks, key=lambda row: row["total_peak"])
        yield (
            "Peak memory",
            nbytes(most["total_peak"]),
            f"{rank_name(run.recording, most['rank'])}, all categories at one time",
        )
    if hidden := {a: f for a, f in (summary.get("overlap") or {}).items() if a != "world"}:
        best = max(hidden, key=lambda a: hidden[a])
        others = ", ".join(f"{axis_name(a)} {percent(f)}" for a, f in hidden.items() if a != best)
        yield f"Hidden, {axis_name(best)} axis", percent(hidden[best]), others or "of its communication time"


def _simulated_numbers(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The length of the step, and how well it uses the hardware."""
    step = summary["steps"][0]
    yield "Step time", seconds(step["seconds"]), f"{step['tokens_per_second']:,.0f} tokens/s"
    if summary.get("mfu") is not None:
        yield "MFU", percent(summary["mfu"]), "model FLOPs ÷ (step time × peak of all devices)"
