"""A list of ranks to choose one from, for keyboards and for views that cannot be clicked."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from engine.job.job import Job
from engine.job.mesh import mesh_of
from lab.widgets.modules import module, styles

MOST_LISTED = 512


class RankChoice(anywidget.AnyWidget):
    """`rank` is the chosen one or None. `offer` says which there are."""

    _esm = module("rank_choice.js")
    _css = styles()
    rank = traitlets.Int(None, allow_none=True).tag(sync=True)
    ranks: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)

    def offer(self, job: Job, rank: int | None) -> None:
        """Lists the ranks of a job, the first `MOST_LISTED` of them, with `rank` chosen (None: no rank)."""
        mesh = mesh_of(job)
        with self.hold_sync():
            self.ranks = [[r, f"rank {r}: {mesh.coordinate(r)}"] for r in range(min(mesh.size, MOST_LISTED))]
            self.rank = rank
