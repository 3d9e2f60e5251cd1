"""How many bytes a collective moves per rank: by the algorithm (logical), and by the backend (wire)."""

from __future__ import annotations

from engine.cluster.operations import OPERATIONS


def logical_bytes(op: str, n: int, nbytes: int) -> int:
    """Bytes each of `n` ranks sends in the ring algorithm; `nbytes` is the size of the full tensor.

    all_reduce 2(n−1)/n·S; reduce_scatter, all_gather and all_to_all (n−1)/n·S; a message S
    (Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in MPICH", section 4).
    Rounded down where n does not divide the bytes. Raises `Unknown` for an operation that there is not.
    """
    rounds = OPERATIONS[op].rounds
    return rounds * (n - 1) * nbytes // n if rounds else nbytes


def wire_bytes(op: str, n: int, nbytes: int, backend: str) -> int:
    """Bytes the backend really sends: gloo carries out reduce-scatter as a whole all-reduce and keeps a slice."""
    if backend == "gloo" and op == "reduce_scatter":
        op = "all_reduce"
    return logical_bytes(op, n, nbytes)
