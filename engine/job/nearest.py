"""The valid settings nearest to a wish that is not, in words."""

from __future__ import annotations

import math


def divisors(total: int) -> list[int]:
    """Of total ≥ 1, in rising order."""
    low = [d for d in range(1, math.isqrt(total) + 1) if total % d == 0]
    return sorted({*low, *(total // d for d in low)})


def any_of(valid: list[int], wanted: int, most: int = 5) -> str:
    """The valid settings nearest to the wanted one: "2, 4 or 8"."""
    near = sorted(sorted(valid, key=lambda v: abs(v - wanted))[:most])
    return " or ".join(filter(None, [", ".join(map(str, near[:-1])), str(near[-1])]))


def nearest_multiples(value: int, of: int) -> str:
    """Those around a value that `of` does not divide: "4 or 6"."""
    below, above = value // of * of, (value // of + 1) * of
    return f"{below} or {above}" if below else f"{above}"
