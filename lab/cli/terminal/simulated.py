"""What a simulated step looks like in a terminal: how long, how well used, does it fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engine.recording.tables import CATEGORY_WORDS
from lab.facade import Run
from lab.wording import nbytes, percent, rate, seconds

Row = dict[str, Any]


def headline(summary: Row) -> RenderableType:
    """How long a step takes and whether it fits, and what that rests on."""
    line = Text(f"≈ simulated on {summary['cluster']}: ", style="bold cyan")
    rate = summary["steps"][0]["tokens_per_second"]
    took = f"{seconds(summary['step_seconds'])} a step, {rate:,.0f} tokens/s"
    basis = "no process ran: the operations of this plan, timed by the cluster's description"
    return Group(
        line + Text(took, style="not bold default"), fit(summary), Padding(Text(basis, style="dim"), (0, 0, 1, 2))
    )


def fit(summary: Row) -> Text:
    """Whether the fullest rank's memory is enough, and if not, what is too much."""
    worst = summary["memory"]["worst"]
    needs = f"rank {worst['rank']} needs {nbytes(worst['total_peak'])} of {nbytes(worst['device_bytes'])}"
    if summary["fits"]:
        return Text("✔ fits: ", style="bold green") + Text(needs, style="not bold default")
    what = f"{needs}: too much from its {CATEGORY_WORDS[worst['breaks']]} on"
    return Text("✘ does not fit: ", style="bold red") + Text(what, style="not bold default")


def usage(run: Run) -> RenderableType:
    """Model and hardware use with their definitions."""
    summary, table = run.summary, Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    peak = f"peak of all {summary['world_size']:,} ranks' devices"
    table.add_row("MFU", _share(summary["mfu"]), f"FLOPs the model needs ÷ ({peak} × step)")
    table.add_row("HFU", _share(summary["hfu"]), "the same with all FLOPs that run, recomputation included")
    table.add_row("each device", rate(summary["tflops_per_gpu"] * 1e12, "FLOP/s"), "FLOPs that run ÷ step ÷ devices")
    return table


def _share(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"  # the two may differ by less than one in a hundred


def bubble(summary: Row) -> Text:
    """The step's own bubble beside the formula's."""
    found = summary["bubble"]
    known = f"   {percent(found['formula'])} by formula" if found["formula"] is not None else "   no formula known"
    text = Text("\nbubble  ", style="bold").append(
        f"{percent(found['replayed'])} in this step{known}", style="not bold"
    )
    return text.append("\nidle ÷ total over all ranks; the formula takes equal stages and free messages", style="dim")


def fact_rows(run: Run) -> Iterator[tuple[str, str]]:
    """Facts that only matter where nothing runs."""
    training, plan = run.job.training, run.job.plan
    sequences = f"{run.job.microbatch_size} sequence{'s' if run.job.microbatch_size > 1 else ''}"
    yield "batch", f"{training.batch:,} sequences a step, {sequences} a micro-batch"
    yield "precision", f"{training.precision}, {run.job.precision.terms()}; recompute {plan.recompute}"
    if run.cluster is not None:
        yield "cluster", f"{run.job.hardware.cluster}: {run.cluster.description}"
