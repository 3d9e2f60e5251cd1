"""The planner's answers: what fits, what wins and why, what stands idle. Directions of published claims, as found."""

from __future__ import annotations

import dataclasses
import time
from functools import cache

import pytest
import torch  # noqa: F401  # as the process of a user who has planned before

from engine.cluster.cluster import load_cluster
from engine.job import rules
from engine.job.errors import JobRefused
from engine.job.job import Job, Model, Training
from engine.planner.estimate import outline_cache
from engine.planner.estimate.outline import outline
from engine.planner.explain import crosses_nodes, idle_note
from engine.planner.result import Search
from engine.planner.search import search
from engine.prediction.formulas import model_flops
from engine.prediction.op_templates import meta_templates, template_cache
from engine.prediction.published_models import preset

A100 = load_cluster("a100-dgx")
SMALL = Job(
    model=Model(layers=8, hidden=512, heads=8, seq=256, vocab=1024, tied=True),
    training=Training(batch=32, precision="mixed18"),
)


@cache
def found(name: str, gpus: int, **fixed: object) -> Search:
    return search(name, A100, gpus, fixed=fixed, refine=0)


def test_the_ranking_is_by_time_and_every_plan_is_legal_and_fits() -> None:
    result = search(SMALL, A100, 8, refine=3)
    replayed = [one.seconds for one in result.ranked if one.refined]
    estimated = [one.seconds for one in result.ranked if not one.refined]
    assert len(replayed) == 3
    assert replayed == sorted(replayed)
    assert estimated == sorted(estimated)
    for one in result.ranked:
        rules.check(one.job)
        assert one.bytes <= result.limit_bytes
        assert one.job.world_size == 8 - one.idle_gpus
        assert one.mfu == pytest.approx(model_flops(one.job) / one.seconds / (one.job.world_size * 312e12))
        assert one.tokens_per_second == pytest.approx(32 * 256 / one.seconds)


def test_twelve_ranks_of_sixty_four_gpus_leave_four_idle() -> None:
    """C1: 64 is no multiple of tensor 4 × pipeline 3."""
    result = found("example-12-layer", 64, tp=4, pp=3)
    assert result.idle_gpus == 4
    assert result.winner.job.world_size == 60
    assert any(
        "60 work, 4 stand idle; nearest that use all 64: tp 4 × pp 4" in sentence for sentence in result.sentences
    )
    note = idle_note(preset("example-12-layer").job, 64, 4, 3)
    assert "64 GPUs with tp 4 × pp 3 = 12: 60 work, 4 stand idle" in note
    assert "tp 4 × pp 2 (dp 8)" in note
    assert "tp 4 × pp 4 (dp 4)" in note
    assert "none stands idle" in idle_note(preset("example-12-layer").job, 64, 4, 4)


def test_a_plan_that_leaves_gpus_idle_is_offered_where_it_is_faster() -> None:
    """64 GPUs: 60 replicas beat 32 pairs by 4 %, since 64 does not divide the batch."""
    result = search("example-12-layer", A100, 64, refine=20)
    plan = result.winner.job.plan
    assert (plan.dp, plan.tp, plan.pp) == (60, 1, 1)
    assert result.idle_gpus == result.winner.idle_gpus == 4
    assert result.full is not None and result.full.job.world_size == 64
    using_all = min(one.seconds for one in result.ranked if not one.idle_gpus)
    assert using_all / result.winner.seconds == pytest.approx(1.04, abs=0.01)
    assert any("4 of 64 GPUs stand idle, and it is faster so" in sentence for sentence in result.sentences)


def test_all_gpus_work_where_that_is_fastest() -> None:
    result = found("llama2-7b", 64)
    assert result.idle_gpus == 0 and result.full is None
    assert result.winner.job.world_size == 64


def test_more_reserve_drops_more_plans_and_each_says_by_how_much() -> None:
    little, much = (search("llama2-7b", A100, 8, reserve_bytes=n * 10**9, refine=0) for n in (1, 40))
    assert much.fitting < little.fitting
    for result in (little, much):
        assert result.fitting + sum(one.count for one in result.dropped) == result.legal
        words = {name: name for name in ("activations", "buffers")} | {
            "params": "parameters", "grads": "gradients", "optimizer": "optimizer state", "gathered": "gathered",
        }  # fmt: skip
        for one in result.dropped:
            assert one.over > 0
            more = (f"{one.over / 1e9:.3g} GB more", f"{one.over / 1e6:.3g} MB more")
            assert any(
                words[one.category] in sentence and any(one_way in sentence for one_way in more)
                for sentence in result.sentences
            )


def test_each_nearest_loser_differs_in_its_knob_and_names_a_reason() -> None:
    result = found("llama2-7b", 64)
    best = result.winner.job
    for knob, other in result.nearest.items():
        mine = best.microbatch_size if knob == "microbatch size" else getattr(best.plan, knob)
        theirs = other.job.microbatch_size if knob == "microbatch size" else getattr(other.job.plan, knob)
        assert mine != theirs
        assert other.estimate >= result.winner.estimate
    assert "recompute=selective: +" in " ".join(result.sentences)


def test_no_nearest_loser_is_faster_where_programs_are_too_large_to_look_at_many() -> None:
    fixed = {"tp": 4, "recompute": "selective", "sequence_parallel": True}
    result = search("gpt3-175b", load_cluster("h100-dgx"), 1024, fixed=fixed, refine=0)
    assert result.unsure, "not all that might be faster was looked at"
    assert all(other.seconds >= result.winner.seconds for other in result.nearest.values())


def test_a_search_draws_no_outline_that_another_has_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Job] = []
    monkeypatch.setattr(outline_cache, "outline", lambda job: drawn.append(job) or outline(job))
    search(SMALL, A100, 8, fixed={"tp": 2, "pp": 2}, refine=0)
    assert drawn, "an outline is drawn where it is first asked for"
    drawn.clear()
    search(SMALL, A100, 8, fixed={"tp": 2, "pp": 2}, refine=0)
    assert drawn == []


def test_gpt3_on_1024_gpus_is_searched_quickly_and_keeps_tensor_groups_within_nodes() -> None:
    found("example-12-layer", 8)  # torch's modules for meta tensors load once
    meta_templates._executed.cache_clear()
    template_cache._unit_templates.cache_clear()
    began = time.process_time()
    result = search("gpt3-175b", A100, 1024, refine=0)
    took = time.process_time() - began
    assert result.legal > 50_000
    assert took < 30, "seconds of processor; generous, since other programs share it"
    assert not crosses_nodes(result.winner.job, A100)
    assert result.winner.job.plan.tp <= 8


@pytest.mark.parametrize(("name", "gpus"), [("llama2-7b", 64), ("llama2-70b", 256), ("gpt3-175b", 1024)])
def test_larger_models_need_more_than_data_parallelism(
    name: str, gpus: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """C16: below 10B data parallelism with ZeRO is enough; above, tensor or pipeline parallelism comes in."""
    result = found(name, gpus)
    with capsys.disabled():
        print(f"\n{name} on {gpus}: {result.sentences[0]}")
    plan = result.winner.job.plan
    assert (plan.tp * plan.pp == 1) == (name == "llama2-7b")
    assert not crosses_nodes(result.winner.job, A100)


def test_plain_data_parallelism_with_zero_2_beats_3d_with_zero_3_where_it_fits() -> None:
    """C17: the direction for 7B on 64 GPUs, where replicas fit: ZeRO-2 sends less and tensor groups cost time."""
    plain = found("llama2-7b", 64, tp=1, pp=1, zero=2).winner
    split = found("llama2-7b", 64, tp=2, pp=2, zero=3).winner
    assert plain.estimate < split.estimate
    assert split.components["tensor"] > 0 == plain.components["tensor"]
    in_turns = found("llama2-7b", 64, tp=2, pp=2, zero=3, schedule="1f1b").winner
    assert plain.components["bubble"] == 0 < in_turns.components["bubble"]  # ZB-V's busiest rank never idles
    with pytest.raises(JobRefused, match="params"):  # and 70B does not fit without splitting parameters
        found("llama2-70b", 256, tp=1, pp=1, zero=2)


REFUSALS = [
    ("llama2-7b", 0, {}, "gpus=0 is too small"),
    ("llama2-7b", 10**8, {}, "use at most 32,768"),
    ("llama", 8, {}, "did you mean llama2-7b?"),
    ("llama2-7b", 8, {"tp": 3}, "tp=3 does not divide heads=32"),
    ("llama2-7b", 8, {"zero": 7}, "zero=7 is not a ZeRO stage"),
    ("llama2-7b", 8, {"hidden": 100}, "does not divide hidden=100"),
    ("llama2-7b", 8, {"dp": 16}, "needs more than gpus=8"),
    ("llama2-7b", 8, {"tpp": 2}, "did you mean"),
    ("llama2-7b", 8, {"pp": 64}, "layers=32 cannot fill them"),
    ("gpt3-175b", 8, {}, "the model fits nowhere on 8 GPUs: even tp=8.*use about 64 GPUs or more"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "gpus", "fixed", "words"), REFUSALS)
def test_what_cannot_be_planned_is_refused_in_a_sentence(
    name: str, gpus: int, fixed: dict[str, object], words: str
) -> None:
    with pytest.raises(JobRefused, match=words):
        search(name, A100, gpus, fixed=fixed, refine=0)


def test_a_cluster_that_is_too_small_is_refused() -> None:
    with pytest.raises(JobRefused, match="more than the 8 of cluster toy-2x4"):
        search(dataclasses.replace(SMALL), load_cluster("toy-2x4"), 16)


def test_tensor_degrees_that_do_not_divide_the_sequence_are_searched_without_sequence_parallelism() -> None:
    # 12 heads allow tp=12, and 1,024 tokens do not divide by it
    by_tensor = search("example-12-layer", A100, 60, fixed={"tp": 12}, refine=0)
    assert by_tensor.ranked and not any(one.job.scatters_sequence for one in by_tensor.ranked)
    every = search("example-12-layer", A100, 60, refine=0)
    assert all(not one.job.scatters_sequence or 1024 % one.job.plan.tp == 0 for one in every.ranked)
