"""The rule of full recomputation: what a forward dropped is computed again before it is needed."""

from __future__ import annotations

from collections.abc import Iterator

from engine.model.units import recomputes
from engine.program.checks.context import Case, Complaint, Place
from engine.program.kinds import Kind


def recomputations(case: Case) -> Iterator[Complaint]:
    """Under full recomputation each block runs forward again between forward and backward; else none does."""
    seen: dict[tuple[str, int | None], Place] = {}
    for pp_rank, i, a in case.program:
        if a.kind is Kind.RECOMPUTE:
            if not recomputes(case.job, a.unit):
                yield pp_rank, i, f"nothing of {a.unit} was dropped: only recompute=full drops, and only in blocks."
            if seen.setdefault((a.unit, a.microbatch), (pp_rank, i)) != (pp_rank, i):
                yield pp_rank, i, "this has been recomputed already."
            first = case.passes[Kind.FORWARD, a.unit, a.microbatch]
            if first[1] > i:
                yield pp_rank, i, f"it needs forward {a.unit} mb{a.microbatch} first{case.ready(first)}."
        elif a.kind.makes_gradient and recomputes(case.job, a.unit) and (a.unit, a.microbatch) not in seen:
            again = f"recompute {a.unit} mb{a.microbatch} stage{a.stage}"
            yield pp_rank, i, f"its activations were dropped: it needs {again} first."
