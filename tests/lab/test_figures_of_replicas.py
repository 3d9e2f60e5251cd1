"""Figures of many replicas: their lines are the published formulas, their marks the runs."""

from __future__ import annotations

import pytest

import lab
from engine.job.precision import PRECISIONS
from lab.views import figures
from lab.views.figures.memory.zero import saved_share


def test_the_share_that_zero_saves_is_that_of_the_paper_s_table() -> None:
    """Rajbhandari et al. 2020, table 1: 120 GB of 7.5 billion parameters become 31.4, 16.6 and 1.88 on 64 GPUs."""
    shares = [saved_share(zero, 64, PRECISIONS["mixed16"]) for zero in range(4)]
    assert [120 * (1 - share) for share in shares] == pytest.approx([120, 31.4, 16.6, 1.88], abs=0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_runs_lie_on_the_line_of_their_zero_stage(theme: figures.Theme) -> None:
    runs = [lab.simulate(dp=4, zero=zero, precision="mixed16") for zero in (1, 2, 3)]
    fig = figures.zero_savings(runs, claims=(0.75,), theme=theme)
    *lines, marks = fig.data
    assert list(marks.x) == [4, 4, 4] and list(marks.y) == [0.5625, 0.65625, 0.75]
    for line, share in zip(lines, marks.y, strict=True):
        assert dict(zip(line.x, line.y, strict=True))[4] == share
    assert "75 %" in fig.layout.title.text and "87.5 %" in fig.layout.title.text


def test_a_replica_sends_what_the_ring_needs() -> None:
    runs = [lab.simulate(dp=n, batch=16, microbatches=1) for n in (2, 4, 8)]
    line, marks = figures.all_reduce_bytes(runs).data
    assert list(marks.x) == [2, 4, 8] and list(marks.y) == [1, 1.5, 1.75]
    formula = dict(zip(line.x, line.y, strict=True))
    assert all(formula[n] == sent for n, sent in zip(marks.x, marks.y, strict=True))
