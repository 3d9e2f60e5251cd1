"""Sharded matrices: what is drawn equals what slicing and flat buffers give by hand."""

from __future__ import annotations

import pytest

from engine.job.errors import JobRefused
from engine.job.job import Job
from lab.analysis.shards import Area, Layout, layout, local_areas
from lab.views import figures
from lab.views.figures.memory.shards import kept_areas

H = 64


def matrix(found: Layout, name: str) -> int:
    return [m.name for m in found.matrices].index(f"{found.unit}.{name}")


def test_a_column_parallel_linear_gives_each_of_two_ranks_half_of_its_outputs() -> None:
    found = layout(Job.from_options(tp=2), "block0")
    up = found.matrices[matrix(found, "up.weight")]  # [4h, h]: outputs are rows
    assert up.tensor == ((Area(0, 2 * H, 0, H),), (Area(2 * H, 4 * H, 0, H),))


def test_a_row_parallel_linear_gives_each_of_two_ranks_half_of_its_inputs() -> None:
    found = layout(Job.from_options(tp=2), "block0")
    down = found.matrices[matrix(found, "down.weight")]  # [h, 4h]: inputs are columns
    assert down.tensor == ((Area(0, H, 0, 2 * H),), (Area(0, H, 2 * H, 4 * H),))


def test_query_key_and_value_are_each_cut_by_heads() -> None:
    found = layout(Job.from_options(tp=2), "block0")
    qkv = found.matrices[matrix(found, "qkv.weight")]
    assert qkv.tensor[1] == tuple(Area(part * H + H // 2, (part + 1) * H, 0, H) for part in range(3))


def test_zero_3_gives_each_data_rank_a_quarter_of_the_flat_buffer() -> None:
    found = layout(Job.from_options(dp=4, zero=3), "block0")
    size = 12 * H * H + 13 * H  # Narayanan et al. 2021, equation 2
    assert found.own == tuple((i * size // 4, (i + 1) * size // 4) for i in range(4))


@pytest.mark.parametrize("options", [{"dp": 4, "zero": 3}, {"dp": 2, "tp": 2, "zero": 1}, {"dp": 2, "tp": 4}])
def test_ranks_keep_every_element_of_every_matrix_and_none_twice_unless_replicated(options: dict[str, int]) -> None:
    job = Job.from_options(**options)
    found, sharded = layout(job, "block0"), job.plan.zero > 0
    for one in found.matrices:
        places = [(d, t) for d in range(job.plan.dp) for t in range(job.plan.tp)]
        areas = [a for d, t in places for a in kept_areas(found, one, d, t, sharded)]
        copies = 1 if sharded else job.plan.dp
        assert sum(a.size for a in areas) == one.rows * one.columns * copies


def test_a_flat_range_becomes_the_end_of_a_row_whole_rows_and_the_start_of_one() -> None:
    found = layout(Job.from_options(), "block0")
    qkv = found.matrices[matrix(found, "qkv.weight")]
    start = qkv.offset
    assert local_areas(qkv, 0, start + 10, start + 3 * H + 5) == [
        Area(0, 1, 10, H),
        Area(1, 3, 0, H),
        Area(3, 4, 0, 5),
    ]


def test_an_unknown_unit_is_refused_with_those_there_are() -> None:
    with pytest.raises(JobRefused, match="there is no unit 'block9' in this job: use one of embedding"):
        layout(Job.from_options(), "block9")


def test_the_title_says_what_share_the_selected_rank_keeps() -> None:
    # of two tensor ranks one half, of that a quarter
    job = Job.from_options(dp=4, tp=2, zero=3)
    fig = figures.shards(job, selected=0)
    found = layout(job, "block0")
    part = sum(a.size for m in found.matrices for a in kept_areas(found, m, 0, 0, True)) / (12 * H * H)
    assert fig.layout.title.text == f"Rank 0 keeps {100 * part:.0f} % of the parameters of block0's matrices"


def test_a_rank_of_another_stage_is_shown_its_own_first_block() -> None:
    job = Job.from_options(dp=2, tp=2, pp=2, zero=1)  # 4 blocks on 2 stages
    assert "block2's matrices" in figures.shards(job, selected=5).layout.title.text
    assert "keeps nothing of block0" in figures.shards(job, "block0", selected=5).layout.title.text


def test_without_zero_every_data_rank_holds_all() -> None:
    fig = figures.shards(Job.from_options(dp=2, tp=2))
    assert "all 2 data ranks hold the same parameters" in fig.layout.title.text
