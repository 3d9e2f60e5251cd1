"""Wrong linear layers and all-reduces are told their fault and its place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.exercise_answers import Answer, says


@pytest.fixture(autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("runs")))


def linear(kind: str) -> Answer:
    def answer(x: Any, weight: Any, bias: Any, rank: int, n: int) -> Any:
        part = weight.shape[0] // n
        mine = slice(rank * part, (rank + 1) * part)
        if kind == "whole":
            return x @ weight.T + bias
        if kind == "no bias":
            return x @ weight[mine].T
        if kind == "last first":
            mine = slice((n - 1 - rank) * part, (n - rank) * part)
        if kind == "strided":
            return x @ weight[rank::n].T + bias[rank::n]
        if kind == "bias of rank 0":
            return x @ weight[mine].T + bias[:part]
        if kind == "rows":
            wide = x.shape[-1] // n
            return x[..., :wide] @ weight[:, :wide].T
        return x @ weight[mine].T + bias[mine]

    return answer


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("whole", r"rank 0 of 2, .*returned shape \(4, 12\): its part of the output has 6 columns"),
        ("no bias", "the product is right and the bias is missing"),
        ("last first", "it returned the columns of rank 1"),
        ("strided", r"it returned columns \[0, 2, 4, 6, 8, 10\] of the whole output; its part is columns 0 to 5"),
        ("bias of rank 0", r"On rank 1 of 2, .*the values are wrong: at .* torch's layer gives"),
        ("rows", r"returned shape \(4, 12\)"),
    ],
)
def test_a_wrong_column_parallel_linear_is_told_its_fault(kind: str, words: str) -> None:
    says("column_parallel_linear", linear(kind), words)


def backward(kind: str) -> Answer:
    def answer(grad: Any, x: Any, weight: Any, all_reduce: Any) -> Any:
        flat = grad.flatten(0, -2)
        grad_x, grad_w, grad_b = grad @ weight, flat.T @ x.flatten(0, -2), flat.sum(0)
        if kind == "pair":
            return grad_x, grad_w
        if kind == "all":
            return all_reduce(grad_x), all_reduce(grad_w) * 0 + grad_w, grad_b
        if kind == "weight":
            return all_reduce(grad_x), all_reduce(grad_w), grad_b
        if kind == "bias":
            return all_reduce(grad_x), grad_w, grad_b / 2
        return grad_x, grad_w, grad_b

    return answer


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("partial", r"rank \d of 2, .*grad_x is what this rank's columns contribute; the other ranks' is missing"),
        ("pair", r"must return \(grad_x, grad_weight, grad_bias\), and returned 2 values"),
        ("all", r"all_reduce was called 2 times, for shapes \(4, 6\), \(6, 6\): one call is enough"),
        ("weight", "grad_weight is wrong: at .* torch's autograd gives"),
        ("bias", "grad_bias is wrong"),
    ],
)
def test_a_wrong_backward_is_told_its_fault(kind: str, words: str) -> None:
    says("column_parallel_backward", backward(kind), words)


def ring(kind: str) -> Answer:
    def everything(t: Any, r: int, n: int, exchange: Any) -> Any:
        total, passing = t.clone(), t
        for _ in range(n - 1):
            passing = exchange(passing, (r + 1) % n, (r - 1) % n)
            total += passing
        return total

    def reduce_scatter_only(t: Any, r: int, n: int, exchange: Any) -> Any:
        total = t.clone().flatten()
        pieces = total.tensor_split(n)
        for step in range(n - 1):
            pieces[(r - step - 1) % n].add_(exchange(pieces[(r - step) % n], (r + 1) % n, (r - 1) % n))
        return total.view(t.shape)

    def direct(t: Any, r: int, n: int, exchange: Any) -> Any:  # right bytes, and no ring
        total = t.clone().flatten()
        pieces = total.tensor_split(n)
        for step in range(1, n):
            pieces[r].add_(exchange(t.flatten().tensor_split(n)[(r + step) % n], (r + step) % n, (r - step) % n))
        for step in range(1, n):
            pieces[(r - step) % n].copy_(exchange(pieces[r], (r + step) % n, (r - step) % n))
        return total.view(t.shape)

    def by_one(t: Any, r: int, n: int, exchange: Any) -> Any:  # a ring that sends element by element
        total = t.clone().flatten()
        pieces = total.tensor_split(n)
        most = len(pieces[0])
        for phase in (0, 1):
            for step in range(n - 1):
                out, into = pieces[(r + phase - step) % n], pieces[(r + phase - step - 1) % n]
                for i in range(most):
                    got = exchange(out[i : i + 1], (r + 1) % n, (r - 1) % n)
                    into[i : i + 1].copy_(got if phase else into[i : i + 1] + got)
        return total.view(t.shape)

    def flat(t: Any, r: int, n: int, exchange: Any) -> Any:
        return everything(t, r, n, exchange).flatten()

    def to_itself(t: Any, r: int, n: int, exchange: Any) -> Any:
        return exchange(t, r, r)

    return {f.__name__: f for f in (everything, reduce_scatter_only, direct, by_one, flat, to_itself)}[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("everything", r"Rank 0 of 3, .*the sum is right, but you sent 2.00 × S; a ring sends 4/3 = 1.33 × S"),
        ("reduce_scatter_only", r"On rank \d of 2, .*5 of 10 elements are wrong: at .* together"),
        ("direct", r"Rank 0 of 3, .*it sent to rank 2; on a ring it sends to rank 1 only"),
        ("by_one", r"Rank 0 of 2, .*it took 10 exchanges; a ring needs 2\(n−1\) = 2"),
        ("flat", r"returned shape \(15,\): the sum has the shape of the tensor"),
        ("to_itself", r"raised ValueError: to=\d is this rank itself"),
    ],
)
def test_a_wrong_all_reduce_is_told_its_fault(kind: str, words: str) -> None:
    says("ring_all_reduce", ring(kind), words)
