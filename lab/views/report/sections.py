"""The parts of a report in reading order: time, place, memory, communication, steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.job.mesh import mesh_of
from engine.recording.tables import CATEGORIES, Recording
from lab.analysis import CAUSES, core_wait, rank_name, step_ops, typical_step
from lab.analysis.memory import KEY
from lab.analysis.step.time_shares import time_shares
from lab.views import figures
from lab.views.figures.communication.communication import operation_name
from lab.views.figures.grid.grid import MOST_LABELS, Colour, holds
from lab.views.figures.pipeline.bubble import NAMES
from lab.views.report.canvas import canvas
from lab.views.report.html import Html, details, paragraph, table, tag
from lab.views.report.plots import plot
from lab.views.report.reportable import Reportable, is_simulated
from lab.views.timeline import timeline_data
from lab.wording import RESIDENT, WAITING_FOR_CORE, axis_name, nbytes, percent, seconds, shared_cores

Row = Mapping[str, Any]

MOST_PLACED = 512
"""Ranks that fit into a picture of the grid."""


def time_section(run: Reportable) -> Html:
    step = typical_step(run.recording)
    if step is None:
        return _section("time", "Time", paragraph("No step was completed, so there is no time to show."))
    names = step_ops(run.recording, step).rank_names
    shares = time_shares(run.recording, step)
    shown = [name for name in NAMES if name != "core" or not is_simulated(run)]
    heads = ["rank", *(NAMES[name].removeprefix("idle: ") for name in shown), "idle in all"]
    rows = [
        [
            names[rank].removeprefix("rank "),
            *(seconds(row[name]) for name in shown),
            percent(sum(row[c] for c in CAUSES) / (sum(row.values()) or 1)),
        ]
        for rank, row in sorted(shares.items())
    ]
    by_hand = run.summary["bubble"]["formula"] is None
    caption = f"Time of each rank in step {step}: columns of work, then idle time by cause"
    return _section(
        "time",
        "Time: who worked, who waited and why",
        _shared_cores(run, step),
        canvas("timeline", timeline_data(run.recording, run.job, step, by_hand=by_hand), f"step {step}"),
        plot(
            "shares",
            lambda theme: figures.bubble(run, theme=theme),
            "One bar a rank. Solid is work, patterned is waiting, by what for.",
            details("The same as a table", table(caption, heads, rows)),
        ),
    )


def _shared_cores(run: Reportable, step: int) -> Html:
    cores = run.info.environment.get("cpu_count")
    if is_simulated(run) or run.info.device != "cpu" or not cores or run.job.world_size <= cores:
        return Html("")
    share = core_wait(run.recording, step)
    words = "" if share is None else f" {percent(share)} of what looks busy was that: {WAITING_FOR_CORE}."
    return paragraph(shared_cores(run.job.world_size, cores) + words, class_="faint")


def grid_section(run: Reportable) -> Html:
    mesh, like = mesh_of(run.job), run.recording.stands_for
    coloured: Colour = "memory" if run.summary["memory"]["per_rank"] else "stage"
    values = {row["rank"]: nbytes(row["total_peak"]) for row in run.summary["memory"]["per_rank"]}
    rows = []
    for rank in sorted(set(like.values())) or range(mesh.size):
        at = mesh.coordinate(rank)
        name = rank_name(run.recording, rank).removeprefix("rank ")
        rows.append([name, *at.values(), values.get(rank, "–"), holds(run.job, at.pp)])
    tp = mesh.degree("tp")
    share = f", of which it keeps 1/{tp} of every large matrix" if tp > 1 else ""
    layers = f" and the layers it holds{share}" if mesh.size <= MOST_LABELS else ""
    heads = ["rank", *(axis_name(axis) for axis in mesh.axes), "peak memory", "holds"]
    if mesh.size > MOST_PLACED:
        words = f"{mesh.size:,} ranks are too many for a picture: of those alike one is listed."
        listed = table("Coordinates of one rank of each kind, and what it holds", heads, rows)
        return _section("grid", "Place: where each rank sits", tag("div", paragraph(words), listed, class_="card"))
    how = f"Each ball is a rank, labelled with its number{layers}. Lines join the ranks that communicate. Drag to turn."
    return _section(
        "grid",
        "Place: where each rank sits",
        plot(
            "grid",
            lambda theme: figures.grid(run, colour=coloured, theme=theme),
            how,
            details(
                "The same as a table",
                table(
                    f"Coordinates of {'one rank of each kind' if like else 'every rank'}, and what it holds",
                    heads,
                    rows,
                ),
            ),
            width="medium",
        ),
    )


def memory_section(run: Reportable) -> Html:
    found = run.summary["memory"]
    if not found["per_rank"]:
        return _section("memory", "Memory", paragraph("No step was completed, so no memory was recorded."))
    most = max(found["per_rank"], key=lambda row: row["total_peak"])["rank"]
    period = "holds in the step" if is_simulated(run) else "held over the whole training"
    return _section(
        "memory",
        "Memory: what each rank holds",
        plot(
            "memory",
            lambda theme: figures.memory(run, theme=theme),
            f"{_bars_of_memory(found)} Each part is that category's own peak; the diamond is the highest total at any"
            " one time.",
            _memory_table(found["per_rank"], found.get("predicted_per_rank") or []),
            width="wide" if len(found["per_rank"]) > 4 else "",
        ),
        plot(
            "memory-over-time",
            lambda theme: figures.memory_over_time(run, most, theme=theme),
            f"What {rank_name(run.recording, most)} {period}, stacked by category.",
        ),
        _resident(run.info.resident_bytes),
    )


def _bars_of_memory(found: Row) -> str:
    if not found.get("predicted_per_rank"):
        return "A bar a rank."
    return "Solid bars are measured, hatched ones predicted."


def _resident(found: Sequence[int]) -> Html:
    """What the system counted for each process, beside the ledger."""
    if not found:
        return Html("")
    listed = ", ".join(f"rank {rank}: {nbytes(size)}" for rank, size in enumerate(found))
    words = f"Whole processes: {nbytes(min(found))} to {nbytes(max(found))} resident. {RESIDENT}"
    return tag("div", paragraph(words), details("Each rank's process", paragraph(listed)), class_="card")


def _memory_table(measured: list[Row], predicted: list[Row]) -> Html:
    guesses = {row["rank"]: row for row in predicted}
    keys = [*KEY.values(), "total_peak"]
    heads = [
        "rank",
        *(f"{name}{', peak' if KEY[name].endswith('peak') else ''}" for name in CATEGORIES),
        "highest total",
    ]
    rows = []
    for row in measured:
        cells: list[object] = []
        for key in keys:
            guess = guesses.get(row["rank"], {}).get(key)
            note = "not predicted" if guess is None else "as predicted" if guess == row[key] else f"predicted {guess:,}"
            below = Html("<br>") + tag("span", note, class_="faint") if predicted else ""
            cells.append(Html(f"{row[key]:,}{below}"))
        rows.append([row["rank"], *map(Html, map(str, cells))])
    more = ", measured and below it predicted" if predicted else ""
    return details(f"Bytes of each rank{more}", table(f"Bytes{more}", heads, rows))


def communication_section(run: Reportable) -> Html:
    rows: list[Row] = run.summary["communication"]
    if not rows:
        why = "one process has nobody to talk to." if run.job.world_size == 1 else "no step was completed."
        return _section("communication", "Communication", paragraph(f"Nothing was sent: {why}"))
    return _section(
        "communication",
        "Communication: what was sent, and where",
        plot(
            "communication",
            lambda theme: figures.communication(run, theme=theme),
            "Bytes of the lowest rank that uses an axis, in one step: counted as the algorithm moves them,"
            f" predicted by formula, and {'as the backend moves them' if is_simulated(run) else 'really on the wire'}.",
            _communication_table(rows, run.summary.get("overlap") or {}),
            width="wide",
        ),
        _matrix(run),
    )


def _matrix(run: Reportable) -> Html:
    """Who sends to whom, where every rank is recorded."""
    if run.recording.stands_for:
        return Html("")
    return plot(
        "matrix",
        lambda theme: figures.communication_matrix(run, theme=theme),
        "Row: the sender. Column: the receiver. Collectives count along a ring through their group.",
        width="medium",
    )


def _communication_table(rows: list[Row], hidden: Mapping[str, float]) -> Html:
    cells = [
        [
            operation_name(row),
            row["count"],
            f"{row['logical_bytes']:,}",
            *_predicted(row),
            f"{row['wire_bytes']:,}",
            percent(hidden[row["axis"]]) if row["axis"] in hidden else "–",
        ]
        for row in rows
    ]
    heads = [
        "operation",
        "times",
        "counted bytes",
        "predicted bytes",
        "difference",
        "bytes on the wire",
        "axis hidden",
    ]
    caption = "What the lowest rank on each axis sends and receives in one step"
    return table(caption, heads, cells)


def _predicted(row: Row) -> tuple[str, str]:
    guess = row.get("predicted_bytes")
    if guess is None:
        return "–", "–"
    difference = row["logical_bytes"] - guess
    return f"{guess:,}", "none" if difference == 0 else f"{difference:+,}"


def steps_section(run: Reportable) -> Html:
    rows = _steps(run.recording)
    if is_simulated(run):
        return Html("")  # its one step is all over the page
    if not rows:
        return _section("steps", "Steps", paragraph("No step was completed."))
    heads = ["step", "loss", "loss in one process", "gradient norm", "time", "tokens/s"]
    cells = [
        [
            r["step"],
            _or_dash(r["loss"]),
            _or_dash(r["reference_loss"]),
            _or_dash(r["grad_norm"], 4),
            seconds(r["seconds"]),
            f"{r['tokens_per_second']:,.0f}",
        ]
        for r in rows
    ]
    found = table(f"Every step, {len(rows)} in all", heads, cells)
    shown = details("Show all steps", found) if len(rows) > 30 else found
    return _section("steps", "Steps", tag("div", shown, class_="card"))


def _steps(recording: Recording) -> list[Row]:
    rows: list[Row] = recording.metrics.to_pylist()
    return rows


def _or_dash(value: float | None, digits: int = 6) -> str:
    return "–" if value is None or value != value else f"{value:.{digits}f}"


def _section(name: str, title: str, *content: object) -> Html:
    return tag("section", tag("h2", title, id=name), *content, aria_labelledby=name)
