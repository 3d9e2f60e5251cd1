"""Saved activations: executed on meta tensors, in closed form, and as Korthikanti et al. 2022 count them, term by term.

Besides the paper's bytes the lab counts the two norms' statistics, mean and inverse deviation of every token in fp32:
16·n bytes a block, ÷ t under sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.communication.comm import Group
from engine.execution.flat_bucket import DTYPES
from engine.job.job import Job
from engine.layers.gpt import GPT
from engine.layers.tensor import TensorAxis
from engine.model.params import unit_params
from engine.prediction.formulas import activation_bytes, kept_bytes
from engine.prediction.op_templates.meta_templates import META, SilentComm, saved_bytes
from engine.recording.ledger import storage_identity, watching_saved
from tests.published.korthikanti import CONFIGS, Config

GIB = 2**30
S, B, H, A = 2048, 4, 6144, 64  # the paper's 22B model
SBH, AS2B = S * B * H, A * S * S * B


def job(**options: Any) -> Job:
    plan = {"dropout": 0.1, "precision": "mixed16", "microbatches": 1, "batch": B} | options
    return Job.from_options(layers=1, hidden=H, heads=A, seq=S, vocab=51200, tied=True, **plan)


@pytest.mark.parametrize(("precision", "recompute"), list(product(["fp32", "mixed16"], ["none", "selective", "full"])))
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(("tp", "scattered"), [(1, False), (2, False), (2, True), (8, False), (8, True)])
def test_what_units_save_when_executed_is_what_the_closed_form_says(
    tp: int, scattered: bool, dropout: float, precision: str, recompute: str
) -> None:
    plan = job(tp=tp, sequence_parallel=scattered, dropout=dropout, precision=precision, recompute=recompute)
    found = saved_bytes(plan)
    units = {"embedding": "embedding", "block": "block0", "head": "head"}
    assert found == {kind: activation_bytes(plan, unit) for kind, unit in units.items()}


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_a_block_saves_the_paper_s_bytes_under_every_way_of_splitting_it(t: int) -> None:
    statistics, ratio = 16 * S * B, A * S / H
    whole, scattered = job(tp=t), job(tp=t, sequence_parallel=True)
    assert block(whole) == pytest.approx(SBH * (10 + 24 / t + 5 * ratio / t) + statistics)  # equation 2
    assert block(scattered) == pytest.approx(SBH / t * (34 + 5 * ratio) + statistics / t)  # equation 4
    selective = job(tp=t, sequence_parallel=True, recompute="selective")
    assert block(selective) == 34 * SBH // t + statistics // t  # section 5
    assert kept_bytes(job(tp=t, recompute="full"), "block0") == 2 * SBH


def block(plan: Job) -> int:
    return saved_bytes(plan)["block"]


def test_each_term_of_the_paper_s_sum_is_what_that_part_of_a_block_saves() -> None:
    """Section 4.1: attention 11·sbh + 5·as²b, MLP 19·sbh, norms 4·sbh."""
    axis = TensorAxis(SilentComm(0, {"tp": Group("tp", (0,), None)}, "gloo"), False)
    plan = job()
    gpt = GPT(plan, axis, META, DTYPES[2])
    params = {p.name.removeprefix("block0."): parameter(p.shape) for p in unit_params(plan.model, 1, "block0")}
    x = parameter((S, B, H))

    def norm() -> Tensor:
        return torch.nn.functional.layer_norm(x, (H,), params["norm1.weight"], params["norm1.bias"])

    attention = saved(lambda: gpt._dropout(gpt.attention(params, x)), params)
    norms = 2 * saved(norm, params)
    assert attention == 11 * SBH + 5 * AS2B
    assert norms == 4 * SBH + 16 * S * B
    assert block(plan) - attention - norms == 19 * SBH


def parameter(shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, device=META, dtype=torch.bfloat16, requires_grad=True)


def saved(function: Callable[[], Tensor], params: dict[str, Tensor]) -> int:
    with watching_saved({storage_identity(p) for p in params.values()}) as found:
        function()
    return found.nbytes


@pytest.mark.parametrize("name", CONFIGS)
def test_korthikanti_s_first_figure_is_reproduced_with_its_own_simplifications(name: str) -> None:
    """L layers in flight on the first stage, and (1 + (p−1)/(pv)) times as many if interleaved; blocks alone."""
    config = CONFIGS[name]
    layers = config.layers * in_flight(config) / GIB
    assert layers * (activation_bytes(config.plain, "block0") - 16 * tokens(config)) == config.baseline_gib
    present = activation_bytes(config.present, "block0") - 16 * tokens(config) // config.tp
    assert layers * present == config.present_gib


def in_flight(config: Config) -> float:
    p, v = config.pp, config.chunks
    return 1 + (p - 1) / (p * v) if v > 1 else 1.0


def tokens(config: Config) -> int:
    return config.microbatch * S
