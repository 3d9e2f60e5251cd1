"""What was measured of a run, of one process, and of one process with its sums in another order, step by step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Number = float | None
DIGITS = 4
"""Of a stored distance."""


@dataclass(frozen=True)
class Curve:
    """A value by step: of the run, of one process, and of the other order, () if that was not measured."""

    run: tuple[float, ...]
    one_process: tuple[float, ...]
    other_order: tuple[float, ...] = ()


@dataclass(frozen=True)
class TensorDistances:
    """Of one parameter after each watched step: largest |Δ| ÷ the model's largest weight, None where none of it was
    looked at. off_by: of the run from one process, and by the rank that is furthest; floor: of the other order, () if
    that was not measured.
    """

    name: str
    off_by: tuple[Number, ...]
    rank: tuple[int, ...]
    floor: tuple[Number, ...] = ()

    @property
    def unit(self) -> str:
        return self.name.partition(".")[0]

    @property
    def tensor(self) -> str:
        """Its name within the unit."""
        return self.name.partition(".")[2] or self.name


@dataclass(frozen=True, kw_only=True)
class Distances:
    """All that a verdict rests on.

    watched: steps after which weights were looked at. param: largest |Δ| over all weights after the last step, NaN if
    one is no number or a rank did not tell; floor_param: the same of the other order. moved: whether any weight of the
    run, and of one process, is another than at the start.
    """

    loss: Curve
    grad_norm: Curve
    weights: tuple[TensorDistances, ...] = ()
    watched: tuple[int, ...] = ()
    param: float = math.nan
    floor_param: Number = None
    moved: tuple[bool, bool] = (True, True)

    @property
    def has_floor(self) -> bool:
        return bool(self.loss.other_order)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = _plain(asdict(self))
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Distances:
        """Raises `LookupError`, `TypeError` or `ValueError` for what `to_json` did not make."""
        curves = {name: Curve(**{k: _floats(v) for k, v in found[name].items()}) for name in ("loss", "grad_norm")}
        tensors = tuple(
            TensorDistances(row["name"], _numbers(row["off_by"]), tuple(map(int, row["rank"])), _numbers(row["floor"]))
            for row in found["weights"]
        )
        run, alone = found["moved"]
        return cls(
            **curves, weights=tensors, watched=tuple(map(int, found["watched"])), param=float(found["param"]),
            floor_param=None if found["floor_param"] is None else float(found["floor_param"]),
            moved=(bool(run), bool(alone)),
        )  # fmt: skip


def distances_of(
    steps: Sequence[Mapping[str, Any]],
    reference: Mapping[str, Any],
    floor: Mapping[str, Any] | None,
    ranks: Mapping[int, Mapping[str, Any]],
    watched: Sequence[int],
) -> Distances:
    """steps: rows with loss and grad_norm. reference, floor, ranks: what the reference, the other order and each rank
    told at their end (`engine.execution.one_process`, `engine.execution.worker.compared`)."""
    other: Mapping[str, Any] = floor or {"losses": (), "grad_norms": (), "weights": {}, "param_max_abs_diff": None}

    def curve(name: str, many: str) -> Curve:
        return Curve(_floats(s[name] for s in steps), _floats(reference[many]), _floats(other[many]))

    return Distances(
        loss=curve("loss", "losses"),
        grad_norm=curve("grad_norm", "grad_norms"),
        weights=tuple(_tensors(ranks, other["weights"], len(watched))),
        watched=tuple(watched),
        param=_worst(rank.get("param_max_abs_diff") for rank in ranks.values()),
        floor_param=other["param_max_abs_diff"],
        moved=(any(rank.get("moved", True) for rank in ranks.values()), bool(reference.get("moved", True))),
    )


def _tensors(
    ranks: Mapping[int, Mapping[str, Any]], floor: Mapping[str, Sequence[Number]], watched: int
) -> Iterator[TensorDistances]:
    """Each parameter with the rank that is furthest off, in the order in which ranks hold them."""
    for name in dict.fromkeys(name for rank in ranks.values() for name in rank.get("weights", ())):
        told = [(rank, tells["weights"][name]) for rank, tells in ranks.items() if name in tells.get("weights", ())]
        furthest = [max(((values[i], rank) for rank, values in told), key=_size) for i in range(watched)]
        yield TensorDistances(
            name,
            tuple(_rounded(value) for value, _ in furthest),
            tuple(rank for _, rank in furthest),
            tuple(map(_rounded, floor.get(name, ()))),
        )


def _size(told: tuple[Number, int]) -> tuple[int, float]:
    """What is no number is larger than all, what was not looked at smaller."""
    value = told[0]
    return (0, 0.0) if value is None else (2, 0.0) if math.isnan(value) else (1, value)


def _worst(told: Any) -> float:
    """NaN if any rank says so, or says nothing: the weights of one rank do not speak for another's."""
    values = [math.nan if value is None else float(value) for value in told]
    return math.nan if not values or any(map(math.isnan, values)) else max(values)


def _rounded(value: Number) -> Number:
    return value if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS - 1}e}")


def _floats(values: Any) -> tuple[float, ...]:
    """JSON has no words for what is no number: it is kept as text."""
    return tuple(float(value) for value in values)


def _numbers(values: Any) -> tuple[Number, ...]:
    return tuple(None if value is None else float(value) for value in values)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
