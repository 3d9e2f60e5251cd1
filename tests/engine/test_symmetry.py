"""Ranks of one class really do the same: a replay of one each, spread out, is the replay of all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.cluster.cluster import Cluster, SlowLink, load_cluster
from engine.job.job import Job
from engine.job.rules import check
from engine.prediction.equivalent_ranks import representatives
from engine.prediction.replay.replay import replay
from engine.recording.tables import Recording
from lab import analysis
from tests.engine.written import written

DGX = load_cluster("a100-dgx")
STRAGGLER = replace(DGX, slow_ranks={5: 0.5})
SLOW_INSIDE = replace(DGX, slow_links=(SlowLink(between="ranks", a=2, b=3, factor=0.01),))
SLOW_ACROSS = replace(DGX, slow_links=(SlowLink(between="nodes", a=0, b=1, factor=0.01),))

PLANS: list[dict[str, Any]] = [
    {"dp": 4, "tp": 2, "pp": 4, "layers": 8, "zero": 1},
    {"dp": 2, "tp": 4, "pp": 2, "zero": 3, "sequence_parallel": True},
    {"dp": 2, "tp": 2, "pp": 4, "layers": 8, "schedule": "interleaved", "chunks": 2, "tied": True},
    {"dp": 4, "tp": 2, "pp": 2, "zero": 2, "order": "dp-pp-tp", "tied": True},
]


def times(recording: Recording) -> dict[int, list[list[int]]]:
    """Rank → the times of its rows."""
    ops = recording.ops
    both = np.stack([ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()], 1)
    rank = ops["rank"].to_numpy()
    return {r: both[rank == r].tolist() for r in np.unique(rank).tolist()}


@pytest.mark.parametrize("cluster", [DGX, STRAGGLER, SLOW_INSIDE, SLOW_ACROSS])
@pytest.mark.parametrize("options", PLANS)
def test_the_replay_of_representatives_is_that_of_all(options: dict[str, Any], cluster: Cluster) -> None:
    job = Job.from_options(**options)
    check(job)
    like = dict(enumerate(representatives(job, cluster)))
    everybody = replay(written(job), job, cluster)
    few = replay(written(job, ranks=sorted(set(like.values()))), job, cluster, ranks_like=like)
    mine, theirs = times(everybody), times(few)
    assert {rank: theirs[like[rank]] for rank in mine} == mine
    assert analysis.bubble(few, job, 0) == pytest.approx(analysis.bubble(everybody, job, 0), abs=1e-12)
    assert analysis.overlap(few, 0) == pytest.approx(analysis.overlap(everybody, 0))
    causes = analysis.idle_by_cause(everybody, 0)
    assert analysis.idle_by_cause(few, 0) == {rank: causes[rank] for rank in set(like.values())}


def test_a_thousand_equal_ranks_are_as_many_as_their_pipeline_is_long() -> None:
    job = Job.from_options(dp=16, tp=8, pp=8, layers=8)
    like = representatives(job, DGX)
    assert sorted(set(like)) == list(range(0, 1024, 128)) and all(like[r] == r // 128 * 128 for r in range(1024))


def test_a_straggler_tells_apart_those_who_meet_it_first_and_those_who_hear_of_it_later() -> None:
    """In an 8-rank tensor group: itself, its 7 partners, its data and pipeline neighbours' groups likewise."""
    like = representatives(Job.from_options(dp=16, tp=8, pp=1), STRAGGLER)
    assert set(like) == {0, 5, 8, 13}  # partners in its group, itself, the same two places in other groups


def test_a_slow_link_tells_its_two_ends_groups_from_the_others() -> None:
    job = Job.from_options(dp=2, tp=8, pp=1)
    assert set(representatives(job, DGX)) == {0}
    assert set(representatives(job, SLOW_INSIDE)) == {0, 8}


def test_what_else_tells_ranks_apart_can_be_said() -> None:
    like = representatives(Job.from_options(dp=4), DGX, distinct=lambda rank: rank == 2)
    assert like == (0, 0, 2, 0)


def test_too_small_a_cluster_is_refused() -> None:
    small = replace(DGX, nodes=(replace(DGX.nodes[0], count=1),))
    with pytest.raises(ValueError, match="needs"):
        representatives(Job.from_options(dp=16), small)
