"""What the planner found, in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from engine.planner.explain import in_runs
from engine.planner.result import Candidate, Search
from engine.prediction.formulas import parameters
from lab.wording import parameter_count, percent, seconds


def _schedule(one: Candidate) -> str:
    """With its model chunks a rank, if there are several; without a pipeline there is none."""
    plan = one.job.plan
    return "" if plan.pp == 1 else plan.schedule + (f" ×{plan.chunks}" if plan.chunks > 1 else "")


def _besides(one: Candidate) -> str:
    """What the other columns do not say: a partition of its own, and idle GPUs."""
    partition = one.job.plan.partition
    blocks = f", blocks {in_runs(partition)}" if partition and one.job.plan.pp > 1 else ""
    return blocks + (f", {one.idle_gpus} GPUs idle" if one.idle_gpus else "")


def print_search(found: Search, console: Console, top: int) -> None:
    """The best plans as a table, then why they win and what does not fit."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("", "dp·tp·pp", "schedule", "ZeRO", "b", "m", "SP", "redo", "step", "MFU", "GB", "idle, est.", ""):
        table.add_column(heading, justify="left" if heading in ("dp·tp·pp", "schedule", "redo", "") else "right")
    for rank, one in enumerate(found.ranked[:top], 1):
        job, p = one.job, one.job.plan
        table.add_row(
            str(rank), f"{p.dp}·{p.tp}·{p.pp}", _schedule(one), str(p.zero), str(job.microbatch_size),
            str(p.microbatches), "on" if job.scatters_sequence else "off", p.recompute, seconds(one.seconds),
            percent(one.mfu), f"{one.bytes / 1e9:.1f}", percent(one.bubble),
            ("replayed" if one.refined else "estimated") + _besides(one),
        )  # fmt: skip
    model = found.winner.job.model
    size = f"{parameter_count(parameters(found.winner.job))} ({model.layers} layers, hidden {model.hidden})"
    console.print(f"A GPT of {size} on {found.gpus:,} devices", highlight=False)
    console.print(f"{found.legal:,} legal plans, {found.fitting:,} fit in {found.limit_bytes / 1e9:.3g} GB a GPU")
    console.print(f"({found.terms})", style="dim")
    console.print(table)
    for sentence in found.sentences:
        console.print(f"• {sentence}", highlight=False)
