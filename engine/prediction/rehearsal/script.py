"""A pipeline rank's script: its actions in order, the waits between them spelled out, each with the rows it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.job.job import Job
from engine.model.buckets import buckets_of_pp_rank
from engine.model.unit_kinds import kind_of
from engine.model.units import boundary_bytes
from engine.prediction.op_templates.template_cache import alone_templates, unit_templates
from engine.prediction.op_templates.templates import WAIT, Template, Templates, communication_template
from engine.program.dependencies import Waits
from engine.program.kinds import Kind
from engine.program.program import Action, boundary


@dataclass(frozen=True, slots=True)
class Part:
    """An action, or a wait for the one at `awaits` in the script (−1: no wait), and the rows it writes."""

    action: Action
    label: str
    template: Template
    awaits: int = -1


def script_of(
    job: Job, lane: Sequence[Action], known: Waits, pp_rank: int, backend: str, cache_dir: Path | None
) -> list[Part]:
    """What a lane does in order, its waits spelled out."""
    sizes = boundary_bytes(job)
    keys = [_template_key(sizes, a) for a in lane]
    templates = _templates(job, dict(zip(keys, lane, strict=True)), pp_rank, backend, cache_dir)
    script: list[Part] = []
    place: list[int] = []  # of each action in the script
    for i, awaited in enumerate(known.before):
        for j in awaited:
            script.append(Part(lane[j], f"wait {script[place[j]].label}", WAIT, place[j]))
        if i < len(lane):
            place.append(len(script))
            script.append(Part(lane[i], str(lane[i]), templates[keys[i]]))
    return script


def _template_key(sizes: Sequence[int], a: Action) -> tuple[object, ...]:
    """What decides an action's rows. Of a collective that is its bucket, of a message its size and its peer.

    sizes: of the messages across each boundary.
    """
    if a.kind.rows == "unit":
        return a.kind, kind_of(a.unit).name
    if a.kind.moves == "message":
        return a.kind, sizes[boundary(a)], a.peer
    return a.kind, a.unit, a.peer, a.axis, a.op


def _templates(
    job: Job, examples: dict[tuple[object, ...], Action], pp_rank: int, backend: str, cache_dir: Path | None
) -> dict[tuple[object, ...], Template]:
    """The template for each key. examples: an action of each."""
    kinds, buckets = {a.kind for a in examples.values()}, {b.name: b for b in buckets_of_pp_rank(job, pp_rank)}
    units: Templates = {}
    if Kind.BACKWARD in kinds or Kind.BACKWARD_INPUT not in kinds:
        units |= unit_templates(job, backend, cache_dir)
    if Kind.BACKWARD_INPUT in kinds:  # besides the others, where an order written by hand mixes whole and split ones
        units |= unit_templates(job, backend, cache_dir, split=True)
    alone = [a for a in examples.values() if a.kind.rows == "alone"]
    by_itself = alone_templates(job, pp_rank, alone, backend, cache_dir) if alone else {}
    found: dict[tuple[object, ...], Template] = {}
    for key, a in examples.items():
        match a.kind.rows:
            case "unit":
                found[key] = units[a.kind.name, kind_of(a.unit).name]
            case "alone":
                found[key] = by_itself[a]
            case "sizes":
                found[key] = communication_template(job, a, buckets.get(a.unit), backend)
            case "":
                found[key] = ()
    return found
