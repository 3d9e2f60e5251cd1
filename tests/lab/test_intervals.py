"""Sets of time against counting every nanosecond."""

from __future__ import annotations

import numpy as np

from lab.analysis.step.intervals import Spans, both, covered, either, length, spans, without


def a(*pairs: tuple[int, int]) -> Spans:
    start, end = np.array(pairs, np.int64).reshape(-1, 2).T
    return spans(start, end)


def test_spans_merge_what_overlaps_or_touches_and_drop_what_is_empty() -> None:
    assert a((5, 8), (0, 2), (1, 4), (8, 9), (20, 20)).tolist() == [[0, 4], [5, 9]]


def test_set_operations_on_time_match_counting_the_nanoseconds_one_by_one() -> None:
    random = np.random.default_rng(1)
    for _ in range(50):
        first, second = (random.integers(0, 60, (12, 2)) for _ in range(2))
        x, y = (spans(s.min(axis=1), s.max(axis=1)) for s in (first, second))
        sets = [{t for b, e in s.tolist() for t in range(b, e)} for s in (x, y)]
        assert length(both(x, y)) == len(sets[0] & sets[1])
        assert length(either(x, y)) == len(sets[0] | sets[1])
        assert length(without(x, y)) == len(sets[0] - sets[1])


def test_time_covered_in_each_cell_adds_up_to_the_spans_within() -> None:
    assert covered(a((2, 5), (6, 12)), np.array([0, 3, 6, 9])).tolist() == [1, 2, 3]


def test_no_spans_cover_no_time() -> None:
    assert covered(a(), np.array([0, 5, 9])).tolist() == [0, 0]
    assert length(both(a(), a((1, 2)))) == 0
