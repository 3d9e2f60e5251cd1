"""Each exercise: its solution passes, and plausible wrong answers fail with words that name the fault and the place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import lab
from lab.exercises import NAMES, check, find
from lab.learner import Learner

Answer = Callable[..., Any]


@pytest.fixture(autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("runs")))


@pytest.mark.parametrize("name", NAMES)
def test_the_source_that_solution_shows_passes_and_the_pass_is_kept(name: str) -> None:
    shown = lab.solution(name).markdown
    namespace: dict[str, Any] = {}
    exec(shown.removeprefix("```python\n").removesuffix("\n```"), namespace)
    verdict = lab.check(name, namespace[name])
    assert verdict.passed, verdict
    assert Learner().all("exercise") == {name: {"passed": True}}
    assert f"✔ done | `{name}`" in lab.exercises().markdown


@pytest.mark.parametrize("name", NAMES)
def test_the_blank_to_fill_in_is_a_function_that_does_not_pass(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(find(name).blank, namespace)
    verdict = lab.check(name, namespace[name])
    assert not verdict.passed
    assert f"○ open | `{name}`" in lab.exercises().markdown


def says(name: str, answer: Any, words: str) -> None:
    verdict = check(name, answer)
    assert not verdict.passed
    assert re.search(words, verdict.words), verdict.words


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


def partition(kind: str) -> Answer:
    def even(costs: list[float], stages: int) -> Any:  # equal numbers of layers
        size = -(-len(costs) // stages)
        pieces = [list(range(i, min(i + size, len(costs)))) for i in range(0, len(costs), size)]
        return pieces + [[]] * (stages - len(pieces)) if kind == "empty" else pieces

    def dealt(costs: list[float], stages: int) -> Any:
        return [list(range(stage, len(costs), stages)) for stage in range(stages)]

    def up_to_the_mean(costs: list[float], stages: int) -> Any:
        pieces: list[list[int]] = [[]]
        for layer in range(len(costs)):
            held = sum(costs[i] for i in pieces[-1])
            left = len(costs) - layer
            full = held + costs[layer] > sum(costs) / stages + 1e-9
            if pieces[-1] and len(pieces) < stages and (full or left <= stages - len(pieces)):
                pieces.append([])
            pieces[-1].append(layer)
        return pieces

    def counts(costs: list[float], stages: int) -> Any:
        return [len(costs) // stages] * stages

    def twice(costs: list[float], stages: int) -> Any:
        return [list(range(len(costs))) for _ in range(stages)]

    def without_last(costs: list[float], stages: int) -> Any:
        return [list(piece) for piece in torch.arange(len(costs) - 1).tensor_split(stages)]

    def backwards(costs: list[float], stages: int) -> Any:
        return [t.tolist()[::-1] for t in torch.arange(len(costs)).tensor_split(stages)]

    chosen = {"even": even, "empty": even, "dealt": dealt, "mean": up_to_the_mean, "counts": counts, "twice": twice}
    return (chosen | {"without": without_last, "backwards": backwards})[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("even", "stage 0 sets the pace with 8, and 6 is possible"),
        ("dealt", r"\[\[0, 2\], \[1, 3\]\] is not contiguous: layer 1 is on stage 1 and layer 2 on stage 0"),
        ("mean", "sets the pace with .* is possible"),
        ("counts", "must return a list of lists of layer numbers.*, and stage 0 is an int"),
        ("twice", "layer 0 is on stage 0 and on stage 1"),
        ("without", "stage 0 holds a Tensor: layers are numbers"),
        ("backwards", r"stage 0 runs its layers in the order \[1, 0\]"),
    ],
)
def test_a_wrong_partition_is_told_its_fault(kind: str, words: str) -> None:
    says("partition_layers", partition(kind), words)


def test_the_smallest_bottleneck_is_that_of_a_hand_count() -> None:
    from lab.exercises.partition_layers import smallest_bottleneck

    assert smallest_bottleneck((6, 2, 2, 2, 2, 2), 3) == 6  # 6 | 2 2 2 | 2 2
    assert smallest_bottleneck((1, 2, 3, 4, 5, 6, 7, 8, 9), 3) == 17  # 1…5 | 6 7 | 8 9
    assert smallest_bottleneck((7, 3), 1) == 10


def one_f_one_b(kind: str) -> Answer:
    def answer(rank: int, p: int, m: int) -> Any:
        ups, downs = [f"F{k}" for k in range(m)], [f"B{k}" for k in range(m)]
        if kind == "gpipe":
            return " ".join(ups + downs)
        if kind == "naive":
            return " ".join(word for pair in zip(ups, downs, strict=True) for word in pair)
        warm = min({"early": p - rank - 2, "late": p - rank}.get(kind, p - 1 - rank), m)
        warm = max(warm, 0)
        order = ups[:warm]
        for up, down in zip(ups[warm:], downs, strict=False):
            order += [up, down]
        order += downs[m - warm :]
        if kind == "list":
            return order
        if kind == "once too few":
            return " ".join(order[:-1])
        if kind == "spelt":
            return " ".join(order).replace("F", "forward ")
        return " ".join(order)

    return answer


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gpipe", "On rank 0 of 2 with 4 micro-batches, it holds 3 micro-batches after F2: .* at most p − r = 2"),
        ("late", "it holds 3 micro-batches after F2"),
        ("early", "On rank 0 of 2 with 4 micro-batches, its first backward comes after 1 forward"),
        ("list", 'must return text such as "F0 F1 B0 B1", and returned a list'),
        ("once too few", "On rank 0 of 2 with 4 micro-batches, the backward of micro-batch 3 is missing"),
        ("spelt", "'forward' in .* cannot be read: write F0 or B0"),
        ("naive", "first backward comes after 1 forward"),
    ],
)
def test_a_wrong_1f1b_is_told_its_fault(kind: str, words: str) -> None:
    says("schedule_1f1b", one_f_one_b(kind), words)


def test_orders_that_deadlock_are_told_with_the_grid() -> None:
    def answer(rank: int, p: int, m: int) -> str:
        alone = " ".join(f"F{k} B{k}" for k in range(m))
        return alone if rank < p - 1 or p == 1 else " ".join([f"F{k}" for k in range(m)] + [f"B{k}" for k in range(m)])

    says(
        "schedule_1f1b",
        answer,
        r"2 ranks and 4 micro-batches the ranks cannot run together: .*waits for ever(.|\n)*pipeline 1",
    )


def test_a_backward_before_its_forward_is_told() -> None:
    def answer(rank: int, p: int, m: int) -> str:
        return " ".join(f"B{k} F{k}" for k in range(m))

    says("schedule_1f1b", answer, "B0 comes before F0")


def own(kind: str) -> Any:
    p, m = 4, 8
    lanes = {
        "gpipe": [[f"F{k}" for k in range(m)] + [f"B{k}" for k in range(m)]] * p,
        "weights last": [[f"F{k} I{k}" for k in range(m)] + [f"W{k}" for k in range(m)]] * p,
        "deadlock": [[f"F{k} B{k}" for k in range(m)]] * (p - 1)
        + [[f"F{k} F{k + 1} B{k} B{k + 1}" for k in range(0, m, 2)]],
        "missing": [[f"F{k} B{k}" for k in range(m - 1)]] * p,
        "short": [["F0", "B0"]],
    }
    return "\n".join(" ".join(lane) for lane in lanes[kind])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gpipe", "equal to one process .*Time: 33 slots, and the target is fewer than 33.*Memory: rank 0 holds 8"),
        ("weights last", "Memory: rank 0 holds 8 micro-batches at once, and the target is at most 4"),
        ("deadlock", r"refused: pipeline 0, .*it waits for ever for send_grad mb0 from pipeline 1(.|\n)*<-- here"),
        ("missing", "refused: .*mb7 is missing"),
        ("short", "refused: the schedule has 1 ranks and pp=4"),
    ],
)
def test_an_own_schedule_that_falls_short_is_told_where(kind: str, words: str) -> None:
    says("own_schedule", own(kind), words)


def test_1f1b_itself_misses_the_time_and_its_card_has_the_known_numbers() -> None:
    """(m + p − 1) · 3 slots, bubble (p−1)/(m+p−1), p − r in flight (Narayanan et al. 2021); naive m · p · 3."""
    from engine.job import Job
    from engine.passes.schedules import one_f_one_b as lanes
    from engine.passes.written import written_text
    from lab.exercises.own_schedule import OPTIONS

    def answer(p: int, m: int, v: int) -> Any:
        return written_text(Job.from_options(**OPTIONS), lanes(p, m, v))

    verdict = check("own_schedule", answer)
    assert not verdict.passed and "Time: 33 slots" in verdict.words and "Memory" not in verdict.words
    rows = {row["schedule"]: row for row in verdict.details["score"]}
    assert rows["yours"] == rows["1f1b"] | {"schedule": "yours"}
    assert [rows[name]["slots"] for name in ("naive", "gpipe", "1f1b")] == [96, 33, 33]
    assert rows["1f1b"]["bubble"] == "27 %" and rows["1f1b"]["on each rank"] == "4 3 2 1"
    assert lab.load(verdict.details["run"]).summary["parity"]["passed"]


def test_a_pass_does_not_go_away_when_a_later_try_fails(tmp_path: Path) -> None:
    learner = Learner(tmp_path / "l.json")
    assert check("partition_layers", find("partition_layers").solution, learner=learner).passed
    assert not check("partition_layers", partition("even"), learner=learner).passed
    assert learner.get("exercise", "partition_layers") == {"passed": True}


def test_a_pass_that_cannot_be_kept_is_a_pass_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "file"))
    verdict = lab.check("partition_layers", find("partition_layers").solution)
    assert verdict.passed
    assert "This is not kept: " in verdict.words and "set SHARDLAB_RUNS to another folder" in verdict.words
