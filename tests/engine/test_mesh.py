"""Coordinates and groups, against Megatron's published example and plain enumeration."""

import itertools

import pytest

from engine.job.mesh import Mesh


def test_default_order_puts_tensor_groups_on_neighbours_then_data_then_pipeline() -> None:
    # Megatron-LM parallel_state docstring: 16 GPUs, tensor 2, pipeline 4 (hence data 2)
    mesh = Mesh(dp=2, tp=2, pp=4)
    assert sorted(mesh.groups("tp")) == [[i, i + 1] for i in range(0, 16, 2)]
    assert sorted(mesh.groups("pp")) == [[i, i + 4, i + 8, i + 12] for i in range(4)]
    assert sorted(mesh.groups("dp")) == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]


@pytest.mark.parametrize("order", list(itertools.permutations(["tp", "dp", "pp"])))
def test_rank_and_coordinate_are_inverse_under_every_order(order: tuple[str, ...]) -> None:
    mesh = Mesh(dp=2, tp=3, pp=4, order=order)
    assert sorted(mesh.grid.flatten()) == list(range(24))
    for rank in range(24):
        at = mesh.coordinate(rank)
        assert mesh.rank(**at) == rank
    assert mesh.coordinate(1) != mesh.coordinate(0)
    assert getattr(mesh.coordinate(1), order[0]) == 1, "the first axis named varies fastest"


@pytest.mark.parametrize("axis", ["dp", "tp", "pp"])
def test_groups_of_an_axis_cover_every_rank_once(axis: str) -> None:
    mesh = Mesh(dp=4, tp=4, pp=4)
    groups = mesh.groups(axis)
    assert sorted(r for g in groups for r in g) == list(range(64))
    for group in groups:
        others = [a for a in ("dp", "tp", "pp") if a != axis]
        assert len({tuple(getattr(mesh.coordinate(r), a) for a in others) for r in group}) == 1
        assert [getattr(mesh.coordinate(r), axis) for r in group] == list(range(4))
