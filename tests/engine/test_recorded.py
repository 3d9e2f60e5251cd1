"""What a run recorded, against closed forms and torch's own counters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from engine.communication.comm import Comm, Group
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.layers.gpt import GPT
from engine.layers.tensor import TensorAxis
from engine.model.params import unit_params
from engine.model.units import compute_units, units_of_pp_rank
from engine.prediction.formulas import (
    activation_bytes,
    in_flight_formula,
    parameters,
    predicted_communication,
    state_bytes,
)
from engine.recording.flop_counter import counting
from engine.recording.recorder import Recorder
from tests.engine.running import Trained, assert_ledger_as_predicted, train
from tests.engine.torch_gpt import TorchGPT, batch_of, loss_of

TINY = {"layers": 4, "hidden": 32, "seq": 16, "steps": 2, "batch": 16}
VARIED: list[dict[str, Any]] = [
    {},
    {"tp": 2},
    {"tp": 4, "sequence_parallel": True, "tied": True, "vocab": 301},
    {"pp": 2, "schedule": "gpipe"},
    {"pp": 3, "tp": 2, "schedule": "interleaved", "chunks": 2, "layers": 7, "microbatches": 3, "batch": 12},
    {"pp": 2, "schedule": "interleaved", "chunks": 2, "tied": True},
    *({"dp": 2, "tp": 2, "pp": 2, "zero": z, "sequence_parallel": True, "tied": True} for z in range(4)),
    *({"dp": 3, "batch": 12, "zero": z, "tied": True, "vocab": 301, "prefetch": 2} for z in range(4)),
    {"dp": 2, "zero": 3, "keep_gathered": True},
    {"dp": 2, "zero": 2, "overlap": False, "bucket_kb": 8},
]


def label(options: dict[str, Any]) -> str:
    return "-".join(f"{k}{v}" for k, v in options.items()) or "one"


@pytest.fixture(params=VARIED, ids=label, scope="module")
def run(request: pytest.FixtureRequest) -> Trained:
    return train(parity=False, **TINY | request.param)


def counted(run: Trained, rank: int = 0, step: int = 1) -> Counter[tuple[str, str]]:
    total: Counter[tuple[str, str]] = Counter()
    for row in run.ops.to_pylist():
        if (row["rank"], row["step"]) == (rank, step) and row["op"]:
            total[row["group"], row["kind"] if row["op"] == "message" else row["op"]] += row["logical_bytes"]
    return total


def test_logical_bytes_equal_the_closed_form_for_every_axis_and_operation(run: Trained) -> None:
    for pp_rank in range(run.job.plan.pp):
        rank = mesh_of(run.job).rank(pp=pp_rank)
        assert dict(counted(run, rank)) == predicted_communication(run.job, pp_rank)


def test_the_ledgers_peaks_equal_the_prediction_on_every_rank(run: Trained) -> None:
    assert_ledger_as_predicted(run)


def test_operations_lie_in_order_and_children_inside_their_parents(run: Trained) -> None:
    rows = {(r["step"], r["rank"], r["seq"]): r for r in run.ops.to_pylist()}
    for (step, rank, _), row in rows.items():
        assert row["start_ns"] <= row["end_ns"]
        if row["parent"] >= 0:
            parent = rows[step, rank, row["parent"]]
            assert parent["start_ns"] <= row["start_ns"] and row["end_ns"] <= parent["end_ns"]
            assert row["before_flops"] <= parent["flops"]
        if row["kind"] == "wait":
            assert rows[step, rank, row["ref"]]["start_ns"] <= row["end_ns"]


def test_data_parallel_bytes_are_two_n_minus_one_over_n_times_the_gradients() -> None:
    for n in (2, 4):
        run = train(parity=False, **TINY, dp=n)
        gradients = 4 * parameters(run.job)
        assert counted(run)["dp", "all_reduce"] * n == 2 * (n - 1) * gradients


def test_tensor_parallelism_sends_four_all_reduces_of_bsh_a_layer() -> None:
    short, long = (train(parity=False, **TINY | {"layers": n}, tp=2) for n in (2, 6))
    b, s, h, microbatches = 4, 16, 32, 4
    assert (counted(long) - counted(short))["tp", "all_reduce"] == 4 * (6 - 2) * microbatches * b * s * h * 4


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("n", [2, 4])
def test_state_bytes_per_parameter_are_the_zero_papers(zero: int, n: int) -> None:
    # fp32 Adam: 16, 8 + 8/N, 4 + 12/N, 16/N (Rajbhandari et al. 2020, with 4-byte parameters and gradients)
    job = Job.from_options(dp=n, zero=zero, hidden=64, layers=3, vocab=256)
    psi = parameters(job)
    per_parameter = {0: 16.0, 1: 8 + 8 / n, 2: 4 + 12 / n, 3: 16 / n}[zero]
    assert sum(state_bytes(job, 0).values()) == per_parameter * psi, "sizes here divide by N: no padding"


def test_parameter_count_equals_torchs_module() -> None:
    job = Job.from_options(layers=3, hidden=48, heads=6, seq=20, vocab=300)
    assert parameters(job) == sum(p.numel() for p in TorchGPT(job).parameters())


def test_flops_equal_torchs_flop_counter() -> None:
    run = train(parity=False, **TINY | {"microbatches": 1})
    module, (inputs, targets) = TorchGPT(run.job), batch_of(run.job, 0)
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        loss_of(module(inputs), targets).backward()
    recorded = sum(r["flops"] for r in run.ops.to_pylist() if r["step"] == 1)
    assert recorded == counter.get_total_flops()


def test_the_flops_of_all_ranks_add_up_to_one_processes_whatever_the_split() -> None:
    def total(**plan: Any) -> int:
        run = train(parity=False, **TINY, **plan)
        return sum(r["flops"] for r in run.ops.to_pylist() if r["step"] == 1)

    alone = total()
    assert total(tp=2) == total(pp=2) == total(dp=2, zero=3) == total(tp=2, sequence_parallel=True) == alone


def test_every_unit_runs_on_meta_tensors_with_the_same_shapes_and_flops() -> None:
    job = Job.from_options(**TINY)
    costs = {}
    for device in ("cpu", "meta"):
        comm = Comm(0, "gloo", {axis: Group(axis, (0,), None) for axis in ("dp", "tp", "pp")}, Recorder(0))
        model = GPT(job, TensorAxis(comm, False), torch.device(device), torch.float32)
        tokens = torch.zeros(job.model.seq + 1, 4, dtype=torch.int64, device=device)
        x, found = None, []
        for unit in compute_units(job.model):
            params = {p.name: torch.ones(p.shape, device=device) for p in unit_params(job.model, 1, unit)}
            with counting() as counted:
                x = model.forward(unit, params, x, tokens)
            found.append((unit, tuple(x.shape), counted.cost.flops, counted.cost.touched_bytes))
        costs[device] = found
    assert costs["meta"] == costs["cpu"]
    n, h, v = 4 * 16, 32, 256
    flops = {unit: found for unit, _, found, _ in costs["cpu"]}
    assert flops["block0"] == 24 * n * h * h + 4 * n * 16 * h and flops["head"] == 2 * n * h * v


@pytest.mark.parametrize(("schedule", "p"), [("gpipe", 4), ("1f1b", 4), ("naive", 2)])
def test_activation_peaks_are_in_flight_counts_times_a_stage(schedule: str, p: int) -> None:
    run = train(parity=False, **TINY | {"batch": 32, "microbatches": 8}, pp=p, schedule=schedule)
    for pp_rank in range(p):
        stage = sum(activation_bytes(run.job, unit) for unit in units_of_pp_rank(run.job, pp_rank))
        peak = max(
            r["bytes"] for r in run.memory.to_pylist() if r["rank"] == pp_rank and r["category"] == "activations"
        )
        assert peak == in_flight_formula(run.job, pp_rank) * stage


def test_one_attention_block_saves_what_the_paper_counts() -> None:
    # Korthikanti et al. 2022, equation 1, 34·s·b·h + 5·a·s²·b bytes in 16 bit. In fp32 without dropout, term by term:
    # no dropout masks (2·sbh + a·s²·b of bytes) and one copy of the probabilities instead of two.
    job = Job.from_options(layers=1, hidden=64, heads=4, seq=32, batch=8, microbatches=2)
    s, b, h, a = 32, 4, 64, 4
    paper_16_bit = 34 * s * b * h + 5 * a * s * s * b
    without_dropout = paper_16_bit - 2 * s * b * h - a * s * s * b - 2 * a * s * s * b
    statistics = 2 * 2 * s * b * 4
    assert activation_bytes(job, "block0") == 2 * without_dropout + statistics
