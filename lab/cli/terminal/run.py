"""What a run looks like in a terminal: proof first, then where the time, the memory and the bytes went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engine.job.axes import AXES
from engine.job.job import Model
from engine.job.mesh import Mesh, mesh_of
from engine.job.rules import notes
from engine.job.schedules import SCHEDULES
from engine.machine import cores
from engine.model.family import family_of
from engine.program.kinds import KINDS
from lab.cli.terminal import simulated
from lab.cli.terminal.tables import MAX_WIDTH, MIN_WIDTH, communication, memory, memory_unit
from lab.cli.terminal.timeline import COMMUNICATION, IDLE, MARK, TextTimeline, style_of, text_timeline
from lab.facade import Run
from lab.store.folder import WHOLE
from lab.store.stored_run import RunCorrupt
from lab.verdict import RULE_IN_WORDS, Verdict
from lab.wording import (
    WAITING_FOR_CORE,
    loss_words,
    mesh_words,
    percent,
    seconds,
    shared_cores,
    size_words,
    unseen_words,
)

Row = dict[str, Any]

_LEGEND = {"forward": "forward, micro-batch 0", COMMUNICATION: "communicating", IDLE: "idle"}


def show(run: Run, console: Console, replay: Run | None = None) -> None:
    """Prints the summary of a run, as much of it as there is. replay: the same run on a cluster, shown beside it."""
    width = min(console.width, MAX_WIDTH)
    for part in _parts(run, width, replay):
        console.width = max(width, MIN_WIDTH) if isinstance(part, _Tables) else width
        console.print(part, highlight=False)


def _parts(run: Run, width: int, replay: Run | None) -> Iterator[RenderableType]:
    yield _headline(run)
    if run.status == "corrupt":
        yield Text(f"  {run.message}")
        return
    yield Padding(_facts(run), (0, 0, 1, 2))
    try:
        summary = run.summary
        if not summary["steps"]:
            return
        yield from _sections(run, summary, width, replay)
    except RunCorrupt as error:
        yield Text(str(error), style="bold red")
        return
    if run.folder.exists():
        yield Text(f"Pictures: lab report {run.id} -o report.html", style="dim")


def _sections(run: Run, summary: Row, width: int, replay: Run | None) -> Iterator[RenderableType]:
    if run.status == "simulated":
        yield from _section("Use of the hardware", simulated.usage(run))
        yield from _section("Time, simulated", _timeline(run, width), simulated.bubble(summary))
    else:
        named = "Time" if replay is None else "Time, measured on this machine's processes"
        yield from _section(named, _timeline(run, width), bubble(summary, run), _waiting(run))
    if replay is not None:
        how = "simulated" if run.status == "simulated" else "the same run replayed"
        name = f"Time, {how} on cluster {replay.summary['cluster']}"
        took = Text(f"{seconds(replay.summary['step_seconds'])} a step there", style="dim")
        yield from _section(name, took, _timeline(replay, width), simulated.bubble(replay.summary))
    yield Text(f"Memory of each rank, {memory_unit(summary)[0]}", style="bold")
    yield _Tables(memory(summary, width, run.info.resident_bytes), (0, 0, 1, 2))
    yield Text("Sent by one rank in one step", style="bold")
    yield _Tables(communication(summary), (0, 0, 1, 2))


class _Tables(Padding):
    """What is drawn at least `MIN_WIDTH` wide: a terminal with less breaks its lines, where rich would cut numbers."""


def _section(title: str, *content: RenderableType | None) -> Iterator[RenderableType]:
    yield Text(title, style="bold")
    yield Padding(Group(*(part for part in content if part is not None)), (0, 0, 1, 2))


# -- the run in words ----------------------------------------------------------------------------------------


def _headline(run: Run) -> RenderableType:
    if run.status == "simulated":
        return simulated.headline(run.summary)
    if run.status != "finished":
        return Text(f"✘ {run.status}: {run.id}", style="bold red")
    return proof(run.proof)


_TONES = {"good": "bold green", "bad": "bold red", "odd": "bold yellow", "none": "bold"}


def proof(verdict: Verdict) -> RenderableType:
    """The verdict in one line, why, and what it rests on below; the microscope's line where something left."""
    badge = verdict.badge
    if badge.state == "none":
        return Text(f"{badge.mark} {badge.words}", style="bold")
    line = Text(f"{badge.mark} {badge.words}", style=_TONES[badge.tone])
    below = [Text(verdict.why)]
    below += [Text(verdict.microscope, style="bold")] if verdict.microscope else []
    below += [Text(f"{verdict.numbers} {RULE_IN_WORDS}".lstrip(), style="dim")]
    return Group(line, Padding(Group(*below), (0, 0, 1, 2)))


def _facts(run: Run) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _fact_rows(run):
        table.add_row(name, value)
    return table


def _schedule(run: Run) -> str:
    return "an order of its own (written by hand)" if run.by_hand else run.job.plan.schedule


def _fact_rows(run: Run) -> Iterator[tuple[str, str | Text]]:
    info, job = run.info, run.job
    if run.folder.exists():
        yield "run", run.id
    if run.status not in WHOLE and run.message:
        yield "why", run.message
    plan = job.plan
    parts = [mesh_words(plan), f"ZeRO-{plan.zero}", _schedule(run)]
    chunks = f" in {plan.chunks} chunks" if plan.chunks > 1 else ""
    yield (
        "plan",
        f"{_count(job.world_size, 'rank' if run.status == 'simulated' else 'process')} = {', '.join(parts)}{chunks},"
        f" {_count(plan.microbatches, 'micro-batch')}",
    )
    if job.fault.bug:
        yield (
            "fault",
            Text(f"{job.fault.bug}, put in on purpose", style="bold yellow").append(
                f". {unseen}" if (unseen := unseen_words(job.fault.bug)) else ""
            ),
        )
    family = "" if job.model.family == Model.family else f"{family_of(job.model).label}: "
    yield "model", f"{family}{size_words(job.model)}"
    if run.status == "simulated":
        yield from simulated.fact_rows(run)
    elif info.backend:
        yield (
            "backend",
            f"{info.backend} on {info.device}" + (f": {info.backend_reason}" if info.backend_reason else ""),
        )
    steps = run.summary["steps"]
    if steps and run.status != "simulated":
        yield "training", _progress_words(steps, run.summary)
    for note in notes(job):
        yield "note", note


def _progress_words(steps: list[Row], summary: Row) -> str:
    first, last = steps[0], steps[-1]
    rates = sorted(step["tokens_per_second"] or 0 for step in steps)
    words = f"loss {loss_words(first['loss'])}"
    words += f" → {loss_words(last['loss'])}" if len(steps) > 1 else ""
    words += f" in {_count(len(steps), 'step')}, {rates[len(rates) // 2]:,.0f} tokens/s"
    if summary["time_to_ranks_ready_s"] is not None:
        words += f"; processes ready in {summary['time_to_ranks_ready_s']:.1f} s"
    return words + (f", all in {summary['wall_s']:.1f} s" if summary["wall_s"] is not None else "")


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n:,} {what}{'es' if what.endswith(('s', 'ch')) else 's'}"


# -- time ----------------------------------------------------------------------------------------------------


def _timeline(run: Run, width: int) -> RenderableType:
    from lab import analysis

    step = analysis.typical_step(run.recording)
    if step is None:
        return Text("no operation was recorded")
    mesh = mesh_of(run.job)
    gutter = 2 + len(_place_heading(run.recording.stands_for, mesh)) + len(" 100%")
    picture = text_timeline(run.recording, mesh, step, max(20, width - gutter))
    heading = f"step {step}, {seconds(picture.seconds)} wide; {_letters(mesh)}: {_words(mesh)} coordinate"
    if run.recording.stands_for:
        heading += "; ×: ranks that do the same"
    return Group(Text(heading, style="dim"), draw(picture, mesh), legend(picture, width - 2))


def draw(picture: TextTimeline, mesh: Mesh) -> Text:
    """Rank, coordinate (d data, t tensor, p pipeline…), the step, and the share of it spent working."""
    text = Text(no_wrap=True, overflow="crop")
    cells = len(picture.lines[0].text) if picture.lines else 0
    weights = {line.rank: line.stands_for for line in picture.lines if line.stands_for > 1}
    text.append(f"{_place_heading(weights, mesh)}{'':{cells}} busy", style="dim")
    wide = _widths(mesh)
    for line in picture.lines:
        at = mesh.coordinate(line.rank)
        where = " ".join(f"{n:>{w}}" for n, w in zip(at.values(), wide, strict=True))
        like = f" {f'×{line.stands_for}':>6}" if weights else ""
        text.append(f"\n{line.rank:>4}{like}  {where} ")
        for piece in line.pieces:
            text.append(piece.text, style=style_of(piece.what))
        text.append(f" {line.busy:>4.0%}")
    if picture.left_out:
        text.append(f"\n      and {picture.left_out} more ranks that do the same work as these", style="dim")
    return text


def _place_heading(stands_for: Mapping[int, int], mesh: Mesh) -> str:
    """The heading of what stands left of the picture."""
    letters = " ".join(f"{AXES[axis].letter:>{w}}" for axis, w in zip(mesh.axes, _widths(mesh), strict=True))
    return f"rank{f' {chr(215):>6}' if stands_for else ''}  {letters} "


def _widths(mesh: Mesh) -> list[int]:
    """Digits of a place along each axis."""
    return [len(str(degree - 1)) for degree in mesh.degrees.values()]


def _letters(mesh: Mesh) -> str:
    return " ".join(AXES[axis].letter for axis in mesh.axes)


def _words(mesh: Mesh) -> str:
    return ", ".join(AXES[axis].word for axis in mesh.axes)


def legend(picture: TextTimeline, width: int) -> Text:
    """What the signs mean, in lines that break between entries only."""
    text, used = Text(), 0
    for kind in picture.kinds():
        sign = {"forward": "F0f", "backward": "B0b"}.get(kind) or MARK.get(kind) or KINDS[kind].letter
        words = _LEGEND.get(kind) or KINDS[kind].words
        length = len(sign) + 1 + len(words) + 2
        if used and used + length > width:
            text.append("\n")
            used = 0
        used += length
        text.append(sign, style=style_of(kind)).append(f" {words}  ", style="dim")
    return text


def bubble(summary: Row, run: Run) -> Text:
    """The three bubbles side by side, each with what it is."""
    found, plan = summary["bubble"], run.job.plan
    formula = SCHEDULES[plan.schedule].bubble_words
    letters = {"p": plan.pp, "m": plan.microbatches, "v": plan.chunks}
    values = ", ".join(f"{letter}={value}" for letter, value in letters.items() if letter in formula)
    text = Text("\nbubble  ", style="bold")
    text.append(f"{percent(found['measured'])} measured   {percent(found['replayed'])} replayed   ", style="not bold")
    known = found["formula"] is not None
    text.append(f"{percent(found['formula'])} by formula" if known else "no formula known", style="not bold")
    definition = (
        "\nidle ÷ total over all ranks; replayed: this very program with 1 for a block's forward, 2 for its"
        " backward, 1 for each part of a split one and 0 for all else"
    ) + (f"; formula: {formula}, {values}" if known else "")
    return text.append(definition, style="not bold dim")


def _waiting(run: Run) -> Text | None:
    """What of the busy time was waiting for a core, and why there is so much of it."""
    from lab import analysis

    step = analysis.typical_step(run.recording)
    share = None if step is None or run.info.device != "cpu" else analysis.core_wait(run.recording, step)
    words = [] if share is None else [f"{percent(share)} of computing was waiting for a core: {WAITING_FOR_CORE}."]
    words.append(shared_cores(run.job.world_size, int(run.info.environment.get("cpu_count", cores()))))
    return Text(" ".join(filter(None, words)), style="dim") if any(words) else None
