"""The words for a verdict, made from the record in `summary.json`, for every page, report and terminal alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lab.verdict.rule import LIMIT, MULTIPLE
from lab.wording import power

State = Literal["equal", "rounding", "different", "diverged", "unmeasured", "none"]
Tone = Literal["good", "bad", "odd", "none"]
Row = Mapping[str, Any]

RULE_IN_WORDS = (
    f"Allowed in each step: {power(LIMIT)}, or {MULTIPLE:.0f} times the rounding floor until then if that is more. The"
    " rounding floor is how far one process gets from itself when its sums are taken in another order and its first"
    " weights differ in their last bit. Differences of loss and gradient norm are relative to one process, those of a"
    " weight to the model's largest weight."
)
QUANTITIES = {"loss": "loss", "grad_norm": "gradient norm", "weights": "weights"}
_STATES: dict[State, tuple[str, Tone, str]] = {
    "equal": ("✔", "good", "equal to one process"),
    "rounding": ("≈", "good", "equal until rounding grew"),
    "different": ("✘", "bad", "differs from one process"),
    "diverged": ("!", "odd", "training diverged"),
    "unmeasured": ("?", "odd", "not judged: its rounding floor was not measured"),
    "none": ("–", "none", "not compared with one process"),
}
_SHORT: dict[State, str] = {
    "equal": "equal", "rounding": "equal", "different": "differs", "diverged": "diverged", "unmeasured": "not judged"
}  # fmt: skip


@dataclass(frozen=True)
class Badge:
    """A verdict in a few words. state: one of `_STATES`; words: without a capital."""

    state: State
    mark: str
    tone: Tone
    words: str
    passed: bool | None

    @property
    def title(self) -> str:
        return f"{self.mark} {self.words[0].upper()}{self.words[1:]}"

    @property
    def short(self) -> str:
        """For a narrow column: ✔ equal."""
        return "" if self.state == "none" else f"{self.mark} {_SHORT[self.state]}"


@dataclass(frozen=True)
class Judged:
    """A quantity at the step where it comes closest to its limit, or is furthest beyond: numbers in words."""

    name: str
    off_by: str
    limit: str
    floor: str
    where: str
    inside: bool

    @property
    def words(self) -> str:
        allowed = f"of {self.limit} allowed" if self.inside else f"where {self.limit} is allowed"
        return f"{self.name} {self.off_by} {allowed} ({self.where})"


@dataclass(frozen=True)
class Verdict:
    """badge; why: sentences; judged: what it rests on, () where that was not kept; microscope: the first step, unit,
    tensor and rank that left, "" if none did."""

    badge: Badge
    why: str
    judged: tuple[Judged, ...]
    microscope: str

    @property
    def numbers(self) -> str:
        """All that was judged, with its limits, in one sentence; "" if nothing was."""
        if not self.judged:
            return ""
        inside = [one.inside for one in self.judged]
        how = "Closest to their limits" if any(inside) else "Furthest beyond their limits"
        how += ", or furthest beyond" if any(inside) and not all(inside) else ""
        return f"{how}: {'; '.join(one.words for one in self.judged)}."


def brief(passed: bool | None, state: str | None, step: int | None = None) -> Badge:
    """What stands in a list. state: None for a run of before there were states, which was judged by limits alone.

    `passed` follows from a state, whatever was stored beside it.
    """
    known: State = "none" if passed is None else "equal" if passed else "unmeasured"
    if state is not None:
        known = next((name for name in _STATES if name == state), "unmeasured")
    mark, tone, words = _STATES[known]
    if known in ("rounding", "diverged") and step is not None:
        words += f" (step {step})"
    held = {"equal": True, "rounding": True, "none": None}
    return Badge(known, mark, tone, words, held.get(known, False))


def verdict_of(parity: Row) -> Verdict:
    """The verdict of a record as `lab.verdict.rule.judged` makes it, or one of before there were states."""
    badge = brief(parity.get("passed"), parity.get("state"), parity.get("first_step_out"))
    judged = tuple(_judged(parity)) if parity.get("limits") is not None else tuple(_judged_before(parity, badge))
    return Verdict(badge, " ".join(_why(badge, parity, judged)), judged, _microscope(parity))


def _why(badge: Badge, parity: Row, judged: tuple[Judged, ...]) -> Iterator[str]:
    out = parity.get("first_out") or {}
    which = QUANTITIES.get(out.get("quantity", ""), "")
    if badge.state == "equal":
        yield f"Loss, gradient norm and weights stay within {power(LIMIT)} of one process."
    elif badge.state == "rounding":
        yield (
            f"From step {out.get('step')} on, the {which} first, more than {power(LIMIT)} lies between this run and one"
            f" process, but never more than {MULTIPLE:.0f} times what lies between two orders of summation in one"
            " process: rounding explains it."
        )
    elif badge.state == "different":
        yield from _why_different(out, which, judged)
    elif badge.state == "diverged":
        yield _why_diverged(parity.get("diverged") or {})
    elif badge.state == "unmeasured":
        yield (
            f"It is more than {power(LIMIT)} off one process, and was made before the lab measured how far rounding"
            " alone gets: run it again to know."
        )
    yield from _moved(parity.get("moved") or {})


def _why_different(out: Row, which: str, judged: tuple[Judged, ...]) -> Iterator[str]:
    if out:
        yield f"In step {out['step']} the {which} is further from one process than rounding gets."
    elif all(one.inside for one in judged):
        yield "Weights were not compared, or did not move where those of one process did."


def _why_diverged(ends: Row) -> str:
    run, alone = ends.get("run"), ends.get("one_process")
    if run is None:
        return f"In one process the loss is no number from step {alone} on, in this run it is; until then they agree."
    if alone is None:
        return f"The loss is no number from step {run} on, and in one process with another order of sums either."
    return f"The loss is no number from step {run} on, in one process from step {alone} on; until then they agree."


def _moved(moved: Row) -> Iterator[str]:
    if moved.get("run") is False:
        alone = "neither did those of one process: this proves little" if not moved.get("one_process") else (
            "those of one process did"
        )  # fmt: skip
        yield f"No weight of this run moved; {alone}."


def _judged(parity: Row) -> Iterator[Judged]:
    for quantity, row in parity["limits"].items():
        value, limit = row["off_by"], row["limit"]
        inside = value is not None and value <= limit
        step = f"after step {row['step']}" if quantity == "weights" else f"step {row['step']}"
        whose = f", {row['unit']} {row['tensor']}, rank {row['rank']}" if "rank" in row else ""
        floor = "not measured" if row["floor"] is None else tiny(row["floor"])
        yield Judged(QUANTITIES[quantity], *apart(value, limit), floor, f"{step}{whose}", inside)


def _judged_before(parity: Row, badge: Badge) -> Iterator[Judged]:
    """What runs of before kept: their largest differences, of which only that of the norm is relative."""
    if badge.state == "none":
        return
    names = {
        "loss_max_abs_diff": "loss", "grad_norm_max_rel_diff": "gradient norm", "param_max_abs_diff": "weights"
    }  # fmt: skip
    for key, name in names.items():
        limit = f"about {power(LIMIT)}"
        yield Judged(name, tiny(parity.get(key)), limit, "not measured", "any step", badge.state == "equal")


def _microscope(parity: Row) -> str:
    out, tensor = parity.get("first_out"), parity.get("tensor_out")
    if not out:
        return ""
    how = f"first beyond {power(LIMIT)}" if parity.get("state") == "rounding" else "first out"
    first = f"{how}: step {out['step']}, {QUANTITIES[out['quantity']]}"
    if not tensor:
        return first
    where = f"{tensor['unit']} {tensor['tensor']}, rank {tensor['rank']}"
    return f"{first}; first weights: after step {tensor['step']}, {where}"


def apart(value: float | None, limit: float) -> tuple[str, str]:
    """Both in words, with as many digits as it takes to tell which is more."""
    if value is None or math.isnan(value):
        return "not a number", tiny(limit)
    for digits in range(1, 17):  # 17 tell every number apart
        words = tiny(value, digits), tiny(limit, digits)
        if words[0] != words[1] or value == limit:
            return words
    return words


def tiny(value: float | None, digits: int = 1) -> str:
    return "not a number" if value is None or math.isnan(value) else "0" if value == 0 else f"{value:.{digits}e}"
