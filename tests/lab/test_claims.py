"""Verdicts on claims, and the table of them."""

from __future__ import annotations

import pytest

from lab.learning.claim_table import Claims


def test_a_claim_decided_again_takes_the_place_of_its_first_verdict() -> None:
    claims = Claims()
    claims("C1", "told", "open", "nobody knows")
    claims("C1", "told", "wrong", "3 is not 4")
    assert [(one.verdict, one.because) for one in claims.sorted()] == [("wrong", "3 is not 4")]


def test_claims_come_in_the_order_of_their_numbers() -> None:
    claims = Claims()
    for name in ("C10", "C2", "C1"):
        claims(name, "told", "holds", "seen")
    assert [one.name for one in claims.sorted()] == ["C1", "C2", "C10"]


def test_the_table_counts_each_verdict_and_escapes_what_is_told() -> None:
    claims = Claims()
    claims("C1", "less is <more>", "holds", "1 & 1 is 2")
    claims("C2", "told", "wrong", "no")
    page = claims._repr_html_()
    assert "1 ✔ holds, 0 ◐ holds under conditions, 1 ✘ wrong, 0 ○ open" in page
    assert "less is &lt;more&gt;" in page and "1 &amp; 1 is 2" in page and "<more>" not in page


def test_an_unknown_verdict_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="'maybe' is no verdict: use holds, holds under conditions, wrong, open"):
        Claims()("C1", "told", "maybe", "who knows")
