"""Each exercise: its solution passes and is kept, its blank does not; wrong partitions are told their fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import lab
from lab.learning.exercises import NAMES, check, find
from lab.learning.progress import Learner
from tests.lab.exercise_answers import Answer, says


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
    from lab.learning.exercises.tasks.partition_layers import smallest_bottleneck

    assert smallest_bottleneck((6, 2, 2, 2, 2, 2), 3) == 6  # 6 | 2 2 2 | 2 2
    assert smallest_bottleneck((1, 2, 3, 4, 5, 6, 7, 8, 9), 3) == 17  # 1…5 | 6 7 | 8 9
    assert smallest_bottleneck((7, 3), 1) == 10


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
