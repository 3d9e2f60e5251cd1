# %% [markdown]
# # 02 · ZeRO: who holds what
#
# Data parallelism keeps the whole model on every rank. ZeRO keeps more and more of it only once, shared out over the
# ranks: first the optimizer's state, then gradients, then parameters, which are fetched when they are needed.
#
# This takes about 20 minutes. Afterwards you can say what each stage of the *Zero Redundancy Optimizer* (Rajbhandari et
# al. 2020) shards and saves, what it sends for that, why ZeRO-3 can peak above ZeRO-2, and of what the percentages in
# tutorials are percentages.

# %%
import lab
from engine.job.precision import PRECISIONS
from engine.prediction.formulas import parameters
from lab.views import figures
from lab.views.figures.memory.zero import saved_share

# %% [markdown]
# ## Sixteen bytes for each parameter
#
# The same training step four times, on four real processes each, with ZeRO stage 0 (plain data parallel), 1, 2 and 3.
# Every run ends with the weights of one process. Look at plain data parallel first.

# %%
runs = {stage: lab.run(dp=4, zero=stage, microbatches=4, steps=1) for stage in range(4)}
assert all(run.summary["parity"]["passed"] for run in runs.values())
lab.view(runs[0], "memory")

# %% [markdown]
# Four equal ranks. *Activations* are what forward keeps for backward. The rest is *model state*: parameters, gradients,
# and the optimizer's state. Adam keeps two numbers for each parameter, a running mean of its gradient and of the
# gradient's square.


# %%
def held(run, rank=0):
    """Bytes of memory of one rank, by category."""
    return run.summary["memory"]["per_rank"][rank]


def state(run, rank=0):
    """Bytes for each parameter of the model: parameters, gradients, optimizer."""
    return [held(run, rank)[name] / parameters(run.job) for name in ("params", "grads", "optimizer")]


for rank in range(4):
    params, grads, optimizer = state(runs[0], rank)
    print(f"rank {rank}: {params:g} + {grads:g} + {optimizer:g} bytes for each parameter")
    assert state(runs[0], rank) == [4, 4, 8]

# %% [markdown]
# ZeRO-1 cuts the optimizer's state into four *shards*, one for each rank. Rank i updates only its quarter of the
# parameters; then all ranks gather the four quarters. **How much of a rank's model state does that save?**

# %% jupyter={"source_hidden": true}
lab.predict(
    "02-zero1",
    "Four ranks, fp32. Of its 16 bytes of model state for each parameter, ZeRO-1 saves a rank…",
    choices={
        "75 %": "75 % of the optimizer's state: three of its four quarters go. Parameters and gradients stay whole.",
        "50 %": "The optimizer's state is half of it all, but a quarter of that half stays.",
        "37.5 %": "The optimizer's state is 8 of 16 bytes, and three quarters of it go: 6 of 16.",
        "25 %": "A quarter is what stays of the optimizer's state, not what goes of the whole.",
    },
    run=lambda: lab.run(dp=4, zero=1, steps=1),
    truth=lambda run: f"{100 - 100 * sum(state(run)) / 16:g} %",
    then=lambda run: lab.view(run, "memory"),
)

# %% [markdown]
# ZeRO-2 also shards gradients, ZeRO-3 also parameters. Rank 0 of the four runs, measured beside the formula:

# %%
lab.picture(figures.memory_by_zero, [*runs.values()])


# %%
def told(run):
    parts, total = " + ".join(f"{part:g}" for part in state(run)), sum(state(run))
    return f"{parts} = {total:g} bytes, saves {1 - total / 16:.2%}"


N = 4
formula = {0: [4, 4, 8], 1: [4, 4, 8 / N], 2: [4, 4 / N, 8 / N], 3: [4 / N, 4 / N, 8 / N]}
for stage, run in runs.items():
    print(f"ZeRO-{stage}: {told(run)}")
    assert state(run) == formula[stage]
    assert held(run) == run.summary["memory"]["predicted_per_rank"][0]

# %% [markdown]
# With N replicas a rank holds 16, 8 + 8/N, 4 + 12/N, or 16/N bytes for each parameter. That is all of ZeRO's
# arithmetic; the rest is when to fetch what.
#
# ## The percentages that tutorials quote
#
# Large models train in *mixed precision*. Parameters and gradients take 2 bytes each; Adam keeps its two numbers and a
# master copy of the parameters in fp32, 12 bytes. That is 16 too, but split 2 + 2 + 12. Real runs of the lab are in
# fp32 so far; mixed precision is simulated, with the same ledger and no data.

# %%
mixed = {stage: lab.simulate(dp=4, zero=stage, precision="mixed16") for stage in range(4)}
for stage, run in mixed.items():
    print(f"ZeRO-{stage}: {told(run)}")
assert state(mixed[0]) == [2, 2, 12]
assert [sum(state(run)) for run in mixed.values()] == [16, 7, 5.5, 4]

# %% [markdown]
# **"The optimizer's state is four times the parameters."** Not with Adam: twice in fp32, six times in mixed precision.

# %%
for name, run in (("fp32", runs[0]), ("mixed", mixed[0])):
    params, _, optimizer = state(run)
    print(f"{name:>5}: optimizer's state ÷ parameters = {optimizer / params:g}")
    assert optimizer / params == {"fp32": 2, "mixed": 6}[name]

# %% [markdown]
# **"With N = 4, ZeRO-1 saves 75 %, ZeRO-2 87.5 %, ZeRO-3 95 %."** Each number is true of something, but not of that.
# The lines show what each stage saves of *all* model state in mixed precision; the marks are the simulations above, and
# the dotted lines the three claims.

# %%
lab.picture(figures.zero_savings, [mixed[1], mixed[2], mixed[3]], claims=(0.75, 0.875, 0.95))

# %%
fp32, half, many = PRECISIONS["fp32"], PRECISIONS["mixed16"], float("inf")
for stage, n in ((1, 4), (1, many), (2, 4), (2, many), (3, 4), (3, 8), (3, 20)):
    in_fp32, in_half = saved_share(stage, n, fp32), saved_share(stage, n, half)
    print(f"ZeRO-{stage}, N = {n:>3}: {in_fp32:.2%} in fp32, {in_half:.2%} in mixed precision")
for stage in (1, 2, 3):
    assert saved_share(stage, 4, fp32) == 1 - sum(state(runs[stage])) / 16
    assert saved_share(stage, 4, half) == 1 - sum(state(mixed[stage])) / 16
assert saved_share(1, many, half) == 0.75 and saved_share(2, many, half) == 0.875
assert [saved_share(3, n, half) for n in (4, 8, 20)] == [0.75, 0.875, 0.95]
assert round(saved_share(2, 8, half), 3) == 0.766

# %% [markdown]
# - **75 %** is what ZeRO-1 with N = 4 saves of the *optimizer's state*. Of all model state it is 37.5 % in fp32 and
#   56.25 % in mixed precision, where 75 % is the limit for ever more replicas.
# - **87.5 %** is the limit of ZeRO-2 in mixed precision, 14 of 16 bytes. No number of replicas reaches it.
# - **95 %** is ZeRO-3 with N = 20. It saves 1 − 1/N: 75 % with N = 4, 87.5 % with N = 8.
#
# ## The gather peak
#
# Under ZeRO-3 a rank keeps a quarter of the parameters, but a layer computes with all of its own. So before a layer
# runs, its parameters are *gathered* from all ranks, and afterwards they are released. In the ledger of rank 0 this is
# the flickering band.

# %%
lab.view(runs[3], "memory_over_time")

# %% [markdown]
# How high does it flicker? By default the next layer is gathered while one computes (*prefetch*), so two layers are
# there at once. Layer sizes alone give the peak: a block of width h has 12 h² + 13 h parameters, in four matrices, four
# biases and two norms.

# %%
h, Ψ = runs[3].job.model.hidden, parameters(runs[3].job)
block = 4 * (12 * h * h + 13 * h)  # bytes
options = {"one ahead": {}, "no prefetch": {"prefetch": 0}, "three ahead": {"prefetch": 3}}
options["kept"] = {"keep_gathered": True}
ahead = {name: lab.run(dp=4, zero=3, steps=1, **choice) for name, choice in options.items()}
for name, run in ahead.items():
    peak = held(run)["gathered_peak"]
    print(f"{name:>11}: {peak:>7,} bytes gathered at most, {peak / block:.2f} blocks")
peaks = [held(run)["gathered_peak"] for run in ahead.values()]
assert peaks == [2 * block, block, 4 * block, 4 * Ψ]

# %% [markdown]
# *Kept* means gathered once a step and released at its end: the whole parameters, besides the shard. That is more than
# ZeRO-2 holds, and one answer to a question often asked: **why does ZeRO-3 need more memory than ZeRO-2?** Small models
# are another. This one has a single block:

# %%
kept = ahead["kept"]
small = [lab.run(dp=4, zero=stage, layers=1, steps=1) for stage in (2, 3)]
for name, two, three in (("4 blocks, kept", runs[2], kept), ("1 block", *small)):
    more = held(three)["total_peak"] - held(two)["total_peak"]
    print(f"{name}: ZeRO-3 peaks {more:,} bytes above ZeRO-2")
    saved = 4 * parameters(three.job) * 3 // 4  # three quarters of the parameters
    assert more == held(three)["gathered_peak"] - saved > 0
lab.picture(figures.memory_by_zero, small)

# %% [markdown]
# The rule is in the last line of code: ZeRO-3 saves three quarters of the parameters and adds what is gathered. With
# one block, two layers at once are most of the model. With many, they are little, and ZeRO-3 pays.
#
# And no stage touches activations and buffers. Even in the run with four blocks, only a third of the peak under ZeRO-3
# is model state:

# %%
share = sum(state(runs[3])) * Ψ / held(runs[3])["total_peak"]
print(f"model state under ZeRO-3: {share:.0%} of the peak")
assert 0.30 < share < 0.35

# %% [markdown]
# ## What it costs to send
#
# The all-reduce of plain data parallel consists of two halves: a *reduce-scatter*, after which each rank has its shard
# of the sum, and an *all-gather*, in which each rank collects all shards. ZeRO uses just these halves. Each moves (N −
# 1)/N · 4Ψ bytes a rank on a ring, Ψ being the number of parameters. In that unit, by the tensors that were recorded:


# %%
def volume(run):
    """Bytes that a rank sends on the data axis in a step, in units of (N − 1)/N · 4Ψ, by operation."""
    unit = 3 / 4 * 4 * parameters(run.job)
    sent = {row["op"]: row for row in run.communication_table if row["axis"] == "dp"}
    return {op: row["logical_bytes"] / unit for op, row in sent.items()}


def sent(run):
    parts = " + ".join(f"{units:g} {op.replace('_', '-')}" for op, units in volume(run).items())
    return f"{sum(volume(run).values()):>4g} = {parts}"


single = {stage: lab.run(dp=4, zero=stage, microbatches=1, steps=1) for stage in range(4)}
for stage, run in single.items():
    print(f"ZeRO-{stage}: {sent(run)}")
assert [sum(volume(run).values()) for run in single.values()] == [2, 2, 2, 3]

# %% [markdown]
# Stages 1 and 2 cost nothing extra. Stage 3 sends half as much again, since parameters are gathered for the forward and
# once more for the backward (Rajbhandari et al. 2020, section 7). **"Low for ZeRO-1, medium for ZeRO-2, high for
# ZeRO-3"** is wrong for the first two. But the paper counts a step without accumulation. With four micro-batches:

# %%
M = 4
for stage, run in runs.items():
    print(f"ZeRO-{stage}: {sent(run)}")
print(f"kept:   {sent(kept)}")
[scatter] = [row for row in runs[2].communication_table if row["op"] == "reduce_scatter"]
twice = 2 if runs[2].summary["backend"] == "gloo" else 1
assert scatter["wire_bytes"] == twice * scatter["logical_bytes"]
assert [sum(volume(run).values()) for run in (*runs.values(), kept)] == [2, 2, M + 1, 3 * M, M + 1]

# %% [markdown]
# ZeRO-2 has no place for whole gradients between micro-batches, so it reduces after each of them: m + 1 units. ZeRO-3
# gathers twice for each as well: 3m. With gathered parameters kept, it sends what ZeRO-2 does and pays in memory.
#
# ## Try it
#
# Move the stage and the number of micro-batches, and watch bytes go from one figure to the other. (On the wire a
# reduce-scatter takes twice its bytes under gloo, the backend for CPUs, which carries it out as an all-reduce. NCCL
# does not.)

# %%
lab.explore(("zero", "dp", "microbatches"), ("memory", "communication"), dp=4, zero=2)

# %% [markdown]
# ## At full size
#
# Table 1 of the ZeRO paper gives the model state of a rank for 7.5 billion parameters in mixed precision. No laptop
# runs that; the lab simulates it, with the same programs and the same ledger, on tensors without data. The bytes that
# it books for each parameter, times 7.5 billion, beside what the paper printed:

# %%
paper = {4: (52.5, 41.3, 30), 16: (35.6, 21.6, 7.5), 64: (31.4, 16.6, 1.88)}  # GB, ZeRO-1, 2, 3
size = {"layers": 36, "hidden": 4096, "heads": 32, "seq": 2048, "vocab": 51200, "tied": True}
on = {"precision": "mixed16", "microbatches": 1, "cluster": "a100-dgx"}
large = {}
for n, printed in paper.items():
    for stage, expected in enumerate(printed, start=1):
        large[n, stage] = lab.simulate(dp=n, batch=n, zero=stage, **size, **on)
        booked = 7.5 * sum(state(large[n, stage]))
        print(f"N = {n:>2}, ZeRO-{stage}: {booked:>6.2f} GB, the paper {expected:>5g} GB")
        assert abs(booked - expected) <= 10.0 ** -len(str(expected).partition(".")[2])

# %% [markdown]
# Plain data parallel needs 120 GB of state on every GPU, however many there are; an A100 has 80. ZeRO-1 on four of them
# fits. On 64, with one sequence of 2048 tokens on each, a rank holds this:

# %%
large[64, 0] = lab.simulate(dp=64, batch=64, zero=0, **size, **on)
assert 7.5 * sum(state(large[64, 0])) == 120
assert not large[64, 0].summary["fits"] and large[4, 1].summary["fits"]
peak = held(large[64, 3])
assert sum(state(large[64, 3])) * parameters(large[64, 3].job) < 0.1 * peak["total_peak"]
assert peak["activations_peak"] > 0.8 * peak["total_peak"]
lab.picture(figures.memory_by_zero, large[64, 0].job)

# %% [markdown]
# Under ZeRO-3 the state is nearly gone, and activations are most of what is left. No stage of ZeRO shards those. Tensor
# parallelism (notebook 03) shards a part of them, with sequence parallelism nearly all; recomputation trades them for
# time.
#
# ## Three questions
#
# 1. In mixed precision, what share of the model state does ZeRO-2 save on 8 ranks?
# 2. You train with 16 micro-batches. How many times the bytes of ZeRO-1 does ZeRO-3 send?
# 3. Twice the replicas, 128 in place of 64, halve the state under ZeRO-3. Why does the peak of a rank hardly move?
#
# <details><summary>Answers</summary>
#
# 1. 14 of 16 bytes are sharded and seven of eight parts of them go: 76.6 %.
# 2. 3 · 16 against 2: 24 times.
# 3. At N = 64 state is less than a tenth of the peak. Activations, gathered layers and buffers stay, whatever N is.
#
# </details>
