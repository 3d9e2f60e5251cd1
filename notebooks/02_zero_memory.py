# %% [markdown]
# # 02 · ZeRO: who holds what
#
# Data parallelism keeps the whole model on every rank. ZeRO, the *Zero Redundancy Optimizer* (Rajbhandari et al. 2020),
# keeps each byte once and fetches it when it is needed.
#
# This takes about 20 minutes. Afterwards you can say what each ZeRO stage shards and saves, what it sends for that, why
# ZeRO-3 can peak above ZeRO-2, and of what the percentages in tutorials are percentages.

# %%
import lab
from engine.formulas import parameters
from engine.precision import PRECISIONS
from lab import figures
from lab.figures.zero import saved_share

# %% [markdown]
# ## Sixteen bytes for each parameter
#
# Four replicas, four times the same training step, with ZeRO stage 0 (plain data parallel) to 3. Each run uses four
# real processes, and each ends with the same weights as one process. Look at the memory of plain data parallel first.

# %%
runs = {stage: lab.run(dp=4, zero=stage, microbatches=4, steps=1) for stage in range(4)}
assert all(run.summary["parity"]["passed"] for run in runs.values())
lab.view(runs[0], "memory")

# %% [markdown]
# Four equal bars. Below the *activations* (what forward keeps for backward) lies the *model state*: parameters,
# gradients, and the optimizer's state. Adam keeps two numbers for each parameter, a running mean and a running square
# of its gradient.

# %%
STATE = ("params", "grads", "optimizer")


def state(run, rank=0):
    """Bytes of parameters, gradients and optimizer state for each parameter of the model, on one rank."""
    held = run.summary["memory"]["per_rank"][rank]
    return [held[name] / parameters(run.job) for name in STATE]


params, grads, optimizer = state(runs[0])
print(f"plain data parallel, fp32: {params:g} + {grads:g} + {optimizer:g} bytes for each parameter, on every rank")
assert state(runs[0]) == [4, 4, 8] and all(state(runs[0], rank) == [4, 4, 8] for rank in range(4))

# %% [markdown]
# All four ranks hold the same 16 bytes. ZeRO-1 cuts the optimizer's state into four *shards*, one a rank: rank i
# updates only its quarter of the parameters, then all ranks gather the four quarters. **How much model state does that
# save?**

# %% jupyter={"source_hidden": true}
lab.predict(
    "02-zero1",
    "With 4 ranks, in fp32, ZeRO-1 saves each rank this share of its model state:",
    choices={
        "75 %": "75 % of the optimizer's state: 3 of its 4 quarters are gone. But parameters and gradients stay whole.",
        "37.5 %": "The optimizer is 8 of 16 bytes, and three quarters of it go: 6 of 16.",
        "25 %": "A quarter is what remains of the optimizer's state, not what is saved of the whole.",
    },
    run=lambda: lab.run(dp=4, zero=1, steps=1),
    truth=lambda run: {0.75: "75 %", 0.375: "37.5 %", 0.25: "25 %"}[1 - sum(state(run)) / 16],
    then=lambda run: lab.view(run, "memory"),
)

# %% [markdown]
# ZeRO-2 shards the gradients too, ZeRO-3 also the parameters. Measured on rank 0 of the four runs:

# %%
FORMULA = {0: [4, 4, 8], 1: [4, 4, 8 / 4], 2: [4, 4 / 4, 8 / 4], 3: [4 / 4, 4 / 4, 8 / 4]}


def told(run):
    parts, total = state(run), sum(state(run))
    return f"{' + '.join(f'{part:g}' for part in parts)} = {total:g} bytes, saves {1 - total / 16:.2%}"


for stage, run in runs.items():
    print(f"ZeRO-{stage}: {told(run)}")
    assert (
        state(run) == FORMULA[stage]
        and run.summary["memory"]["per_rank"][0] == run.summary["memory"]["predicted_per_rank"][0]
    )
lab.picture(figures.memory_by_zero, [*runs.values()])

# %% [markdown]
# With N replicas the state of a rank is 16, 8 + 8/N, 4 + 12/N and 16/N bytes for each parameter. That is the whole of
# ZeRO's arithmetic; the rest is when to fetch what.
#
# ## The percentages tutorials quote
#
# Large models train in *mixed precision*: parameters and gradients take 2 bytes each, while Adam keeps its two numbers
# and a master copy of the parameters in fp32, 12 bytes. Also 16, but split 2 + 2 + 12. The lab runs fp32; mixed
# precision it can only simulate so far, which books the same ledger without data.

# %%
mixed = {stage: lab.simulate(dp=4, zero=stage, precision="mixed16") for stage in range(4)}
for stage, run in mixed.items():
    print(f"ZeRO-{stage}: {told(run)}")
assert state(mixed[0]) == [2, 2, 12] and [sum(state(run)) for run in mixed.values()] == [16, 7, 5.5, 4]

# %% [markdown]
# **"The optimizer's state is four times the parameters."** Wrong for Adam: twice in fp32, six times in mixed precision.

# %%
assert state(runs[0])[2] / state(runs[0])[0] == 2 and state(mixed[0])[2] / state(mixed[0])[0] == 6

# %% [markdown]
# **"ZeRO-1 saves 75 %, ZeRO-2 87.5 %, ZeRO-3 95 %."** Each number is true of something. Here is the share of *all*
# model state that each stage saves with N replicas. The dotted lines are the three claims.

# %%
fp32, half = PRECISIONS["fp32"], PRECISIONS["mixed16"]
for stage in range(4):
    assert saved_share(stage, 4, fp32) == 1 - sum(state(runs[stage])) / 16
    assert saved_share(stage, 4, half) == 1 - sum(state(mixed[stage])) / 16
lab.picture(figures.zero_savings, [mixed[1], mixed[2], mixed[3]], claims=(0.75, 0.875, 0.95))

# %%
many = float("inf")
assert saved_share(1, 4, fp32) == 0.375 and saved_share(1, 4, half) == 0.5625 and saved_share(1, many, half) == 0.75
assert saved_share(2, 4, fp32) == 0.5625 and saved_share(2, 4, half) == 0.65625 and saved_share(2, many, half) == 0.875
assert [saved_share(3, n, half) for n in (4, 8, 20)] == [0.75, 0.875, 0.95]
for stage, n in ((1, 4), (2, 4), (3, 4), (3, 8), (3, 20)):
    print(
        f"ZeRO-{stage}, N = {n:>2}: {saved_share(stage, n, fp32):.2%} in fp32, {saved_share(stage, n, half):.2%} mixed"
    )

# %% [markdown]
# - **75 %** for ZeRO-1 with N = 4 is true of the *optimizer's state* alone. Of all model state it is 37.5 % in fp32 and
#   56.25 % in mixed precision, where 75 % is the limit for ever more replicas.
# - **87.5 %** for ZeRO-2 is the limit in mixed precision, 14 of 16 bytes. No number of replicas reaches it.
# - **95 %** for ZeRO-3 is reached at N = 20: it saves 1 − 1/N, which is 75 % at N = 4 and 87.5 % at N = 8.
#
# ## The gather peak
#
# ZeRO-3 holds a quarter of the parameters, but a layer needs all of its own to compute. So before a layer runs, its
# parameters are *gathered* from all ranks, and released afterwards. In the ledger of rank 0 they are the flickering
# band.

# %%
lab.view(runs[3], "memory_over_time", rank=0)

# %% [markdown]
# How high does it flicker? By default the lab gathers one layer ahead (*prefetch*), so that the gather hides behind the
# layer before. Then two layers are there at once. The bounds come from layer sizes alone: a block of width h has 12 h²
# + 13 h parameters (four matrices, biases, two norms).

# %%
h, Ψ = runs[3].job.model.hidden, parameters(runs[3].job)
block = 4 * (12 * h * h + 13 * h)  # bytes
choices = {"no prefetch": {"prefetch": 0}, "three ahead": {"prefetch": 3}, "kept": {"keep_gathered": True}}
ahead = {"one ahead": runs[3]} | {
    name: lab.run(dp=4, zero=3, microbatches=4, steps=1, **options) for name, options in choices.items()
}
gathered = {name: run.summary["memory"]["per_rank"][0]["gathered_peak"] for name, run in ahead.items()}
for name, most in gathered.items():
    print(f"{name:>12}: {most:>7,} bytes gathered, {most / block:.2f} blocks")
assert gathered == {"one ahead": 2 * block, "no prefetch": block, "three ahead": 4 * block, "kept": 4 * Ψ}

# %% [markdown]
# *Kept* means: gathered once a step and released at its end, 4 bytes for each parameter on top of the shard. Then
# ZeRO-3 holds more than ZeRO-2 does, and that is one answer to a question often asked: **why does ZeRO-3 need more
# memory than ZeRO-2?** Small models give another. Here is a model of a single block:


# %%
def peak(run):
    return run.summary["memory"]["per_rank"][0]["total_peak"]


kept = ahead["kept"]
small2, small3 = (lab.run(dp=4, zero=stage, layers=1, microbatches=4, steps=1) for stage in (2, 3))
print(f"4 blocks: ZeRO-2 peaks at {peak(runs[2]):,} bytes, ZeRO-3 with kept parameters at {peak(kept):,}")
print(f"1 block:  ZeRO-2 peaks at {peak(small2):,} bytes, ZeRO-3 as usual at {peak(small3):,}")
assert peak(kept) - peak(runs[2]) == Ψ  # the shard: 4 bytes, on 4 ranks, for each parameter
most = small3.summary["memory"]["per_rank"][0]["gathered_peak"]
assert peak(small3) - peak(small2) == most - 3 * parameters(small3.job) > 0  # gathered, less 3/4 of 4 bytes
lab.picture(figures.memory_by_zero, [small2, small3])

# %% [markdown]
# With one block, two layers at once are most of the model, and what is gathered outweighs what sharding saved. It takes
# many layers, so that two of them are a small part, for ZeRO-3 to pay. And no stage touches *activations*: even in the
# run with four blocks, what is left of the state under ZeRO-3 is only a third of the peak.

# %%
share = sum(state(runs[3])) * Ψ / peak(runs[3])
print(f"ZeRO-3: {share:.0%} of the peak is model state")
assert 0.3 < share < 0.35

# %% [markdown]
# ## What it costs to send
#
# Plain data parallel sends 2(N−1)/N · 4Ψ bytes a step: an all-reduce is a *reduce-scatter* (each rank ends with its
# shard of the sum) followed by an *all-gather* (each rank collects all shards). ZeRO uses exactly these halves. In
# units of (N−1)/N · 4Ψ, measured on rank 0:


# %%
def volume(run):
    """Bytes sent on the data axis in a step, by operation, in units of (N−1)/N · 4Ψ."""
    unit = 3 / 4 * 4 * parameters(run.job)
    return {row["op"]: row["logical_bytes"] / unit for row in run.communication_table if row["axis"] == "dp"}


whole = {stage: lab.run(dp=4, zero=stage, microbatches=1, steps=1) for stage in range(4)}
for stage, run in whole.items():
    print(f"ZeRO-{stage}, 1 micro-batch: {sum(volume(run).values()):g} = {volume(run)}")
assert [sum(volume(run).values()) for run in whole.values()] == [2, 2, 2, 3]

# %% [markdown]
# The paper's result (section 7): stages 1 and 2 cost nothing extra, stage 3 half as much again, since parameters are
# gathered for the forward and again for the backward. **"Low, medium, high" is wrong for stages 1 and 2.** But the
# paper counts a step without accumulation. The runs above had four micro-batches:

# %%
M = 4
for stage, run in runs.items():
    print(f"ZeRO-{stage}, {M} micro-batches: {sum(volume(run).values()):g} = {volume(run)}")
assert [sum(volume(run).values()) for run in runs.values()] == [2, 2, M + 1, 3 * M]

# %% [markdown]
# ZeRO-2 has no room for whole gradients between micro-batches, so it reduces after each: m + 1. ZeRO-3 also gathers
# anew each time: 3m. Keeping the gathered parameters gives the traffic of ZeRO-2 back, for memory:

# %%
print(f"ZeRO-3, kept: {sum(volume(kept).values()):g} = {volume(kept)}")
assert sum(volume(kept).values()) == M + 1

# %% [markdown]
# ## Try it
#
# Move the stage and the number of micro-batches. Watch bytes move from one figure to the other.

# %%
lab.explore(knobs=("zero", "dp", "microbatches"), views=("memory", "communication"), dp=4, zero=2)

# %% [markdown]
# ## At full size
#
# The ZeRO paper's table 1 gives the model state of a rank for 7.5 billion parameters in mixed precision. No laptop runs
# that. The lab simulates it: the same programs and the same ledger, on tensors without data. Below, the bytes that it
# books for each parameter times 7.5 billion, beside what the paper printed.

# %%
PAPER = {4: (52.5, 41.3, 30), 16: (35.6, 21.6, 7.5), 64: (31.4, 16.6, 1.88)}  # GB for ZeRO-1, 2, 3: table 1
GPT = {"layers": 36, "hidden": 4096, "heads": 32, "seq": 2048, "vocab": 51200, "tied": True, "precision": "mixed16"}
large = {}
for n, printed in PAPER.items():
    for stage, expected in enumerate(printed, start=1):
        large[n, stage] = lab.simulate(dp=n, zero=stage, batch=n, microbatches=1, cluster="a100-dgx", **GPT)
        booked = 7.5 * sum(state(large[n, stage]))
        print(f"N = {n:>2}, ZeRO-{stage}: {booked:>6.2f} GB, the paper {expected:>5g} GB")
        assert abs(booked - expected) <= 10.0 ** -len(str(expected).partition(".")[2])

# %% [markdown]
# Plain data parallel needs 120 GB of state, more than the 80 GB of an A100. ZeRO-1 on four of them already fits, with
# one sequence of activations. On 64, this is what a rank holds, activations and buffers included:

# %%
plain = lab.simulate(dp=4, zero=0, batch=4, microbatches=1, cluster="a100-dgx", **GPT)
assert 7.5 * sum(state(plain)) == 120 and not plain.summary["fits"] and large[4, 1].summary["fits"]
for stage in (1, 2, 3):
    held = large[64, stage].summary["memory"]["per_rank"][0]
    parts = ", ".join(f"{name.removesuffix('_peak')} {held[name] / 1e9:.1f}" for name in list(held)[1:-2])
    print(f"ZeRO-{stage} on 64: peak {held['total_peak'] / 1e9:.1f} GB: {parts}")
lab.view(large[64, 3], "memory")

# %% [markdown]
# At ZeRO-3 the state is nearly gone and activations are most of what is left. No ZeRO stage shards those: tensor
# parallelism (notebook 03) and recomputation do.
#
# ## Three questions
#
# 1. In mixed precision, what share of the model state does ZeRO-2 save on 8 ranks?
# 2. You train with 16 micro-batches. How many times the traffic of ZeRO-1 does ZeRO-3 send, with default settings?
# 3. Doubling the replicas from 64 to 128 halves the state of ZeRO-3. Why does the peak of a rank hardly move?
#
# <details><summary>Answers</summary>
#
# 1. 14 of 16 bytes are sharded, and 7 of 8 parts go: 76.6 %.
# 2. 3 · 16 against 2: 24 times.
# 3. Activations, the gathered layers and the buffers stay, whatever N is, and at N = 64 they are nearly all there is.
#
# </details>

# %%
assert f"{saved_share(2, 8, half):.1%}" == "76.6%"
