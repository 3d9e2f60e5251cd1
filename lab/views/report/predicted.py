"""The part of a report that lays a run beside its replay on a described cluster: predicted against measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from engine.prediction.critical_path import PathPiece, What, critical_path, path_totals
from engine.recording.tables import Recording
from lab.analysis import CAUSES, PART_NAMES, Gap, Part, bubble, gap, typical_step
from lab.analysis.step.path import Leg, legs
from lab.store.clusters import HERE
from lab.views.figures.timeline.comparison import replayed_step
from lab.views.report.canvas import canvas
from lab.views.report.html import Html, details, paragraph, table, tag
from lab.views.report.reportable import Reportable
from lab.views.timeline import timeline_data
from lab.wording import percent, seconds

MOST_LEGS = 60
"""Legs of a critical path that are listed; the shorter ones of a longer path are left out."""
_KINDS: dict[What, str] = {
    "compute": "computing",
    "communication": "communication",
    "idle": "between operations, or waiting",
}


def predicted_section(run: Reportable, replay: Recording, cluster: str) -> Html:
    """The section, for a run that completed a step; empty for one that did not."""
    step = typical_step(run.recording)
    if step is None:
        return Html("")
    found = gap(run.recording, replay, step)
    on = f"cluster {cluster}" if cluster else "a described cluster"
    other = "" if cluster == HERE else _OTHER_HARDWARE
    return tag(
        "section",
        tag("h2", "Predicted against measured", id="predicted"),
        paragraph(tag("strong", found.sentence())),
        paragraph(
            f"Predicted is a replay on {on}: what each rank does and what waits for what is as recorded; how long it"
            f" takes is as the cluster describes.{other}",
            class_="faint",
        ),
        canvas("comparison", timeline_data(run.recording, run.job, step, replay), "measured and predicted"),
        tag("div", tag("h3", "Where the difference goes"), _gap_table(found), _each_rank(found), class_="card"),
        tag("div", *_paths(run, replay, step), class_="card"),
        aria_labelledby="predicted",
    )


_OTHER_HARDWARE = (
    " That is not this machine, so the difference is one of hardware and no error of prediction: for this machine,"
    " calibrate it (lab calibrate) and name the cluster here."
)


def signed(ns: float) -> str:
    """A difference in words: +9 ms, −85 µs, none."""
    return f"{'+' if ns > 0 else '−'}{seconds(abs(ns) / 1e9)}" if ns else "none"


def _gap_table(found: Gap) -> Html:
    count = len(found.by_rank)
    rows = [_cells(part, count, found.difference) for part in _shown(found.total)]
    rows.append([tag("strong", "the step"), *_numbers(found.measured, found.predicted, 1), "100 %"])
    who = "mean over the ranks" if count > 1 else "of the one rank"
    caption = f"Time of step {found.step} by what a rank did, {who}: the parts add up to the step"
    return table(caption, ["part", "measured", "predicted", "difference", "of the step's difference"], rows)


def _shown(parts: Sequence[Part]) -> Iterator[Part]:
    return (part for part in parts if part.measured or part.predicted)


def _cells(part: Part, count: int, whole: int) -> list[object]:
    share = f"{_whole(100 * part.difference / (whole * count))} %" if whole else "–"
    return [_name(part), *_numbers(part.measured, part.predicted, count), share]


def _whole(value: float) -> str:
    """Without a digit after the point, and no minus before a 0."""
    return f"{round(value)}".replace("-", "−")


def _name(part: Part) -> str:
    return f"idle: {PART_NAMES[part.name]}" if part.name in CAUSES else PART_NAMES[part.name]


def _numbers(measured: int, predicted: int, count: int) -> list[object]:
    return [
        seconds(measured / count / 1e9) if measured else "none",
        seconds(predicted / count / 1e9) if predicted else "none",
        signed((measured - predicted) / count),
    ]


def _each_rank(found: Gap) -> Html:
    """The differences of every rank, a column a part."""
    if len(found.by_rank) == 1:
        return Html("")
    names = [part.name for part in _shown(found.total)]
    rows = [
        [rank, *(signed(part.difference) for part in parts if part.name in names), signed(found.difference)]
        for rank, parts in found.by_rank.items()
    ]
    caption = "Measured − predicted of every rank; each row adds up to the step's difference"
    return details("Each rank", table(caption, ["rank", *(PART_NAMES[name] for name in names), "the step"], rows))


def _paths(run: Reportable, replay: Recording, step: int) -> Iterator[Html]:
    """What makes the step as long as it is, in both."""
    other = replayed_step(replay, step)
    measured, predicted = critical_path(run.recording, step), critical_path(replay, other)
    idle = bubble(run.recording, run.job, step), bubble(replay, run.job, other)
    yield tag("h3", _path_title(measured, predicted))
    yield paragraph(
        "The critical path is the chain of work and communication that makes the step as long as it is."
        f" On and beside it ranks stand idle: {percent(idle[0])} of all ranks' time, predicted {percent(idle[1])}.",
        class_="how",
    )
    took, said = path_totals(measured), path_totals(predicted)
    rows = [
        [name, _of_path(took[kind], took), _of_path(said[kind], said), signed(took[kind] - said[kind])]
        for kind, name in _KINDS.items()
    ]
    yield table("Time on the critical path", ["on the path", "measured", "predicted", "difference"], rows)
    for title, path in (("measured", measured), ("predicted", predicted)):
        yield details(f"The {title} path, leg by leg", _leg_table(title, path))


def _of_path(ns: int, totals: Mapping[What, int]) -> str:
    return f"{seconds(ns / 1e9)} ({percent(ns / (sum(totals.values()) or 1))})" if ns else "none"


def _path_title(measured: Sequence[PathPiece], predicted: Sequence[PathPiece]) -> str:
    took, said = path_totals(measured), path_totals(predicted)
    shares = [percent(t["compute"] / (sum(t.values()) or 1)) for t in (took, said)]
    return f"Critical path: {shares[0]} of it is computing, predicted {shares[1]}"


def _leg_table(title: str, path: Sequence[PathPiece]) -> Html:
    start = path[0].start_ns if path else 0
    found = legs(path, shortest_ns=round((path[-1].end_ns - start) * 0.01) if path else 0)
    kept = set(sorted(found, key=lambda leg: leg.start_ns - leg.end_ns)[:MOST_LEGS])
    rows = [_leg(leg, start) for leg in found if leg in kept]
    left_out = len(found) - len(rows)
    note = f"; the {left_out} shortest legs are left out" if left_out else ""
    caption = f"Critical path as {title}: waits of a rank below 1 % of the step count as its work{note}"
    return table(caption, ["from", "for", "rank", "what", "operations"], rows, left=0)


def _leg(leg: Leg, start: int) -> list[object]:
    length = seconds((leg.end_ns - leg.start_ns) / 1e9)
    return [f"{(leg.start_ns - start) / 1e6:.3g} ms", length, leg.rank, _KINDS[leg.what], leg.words]
