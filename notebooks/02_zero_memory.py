# %% [markdown]
# # 02 · ZeRO: who holds what
#
# Data parallelism keeps the whole model on every rank. ZeRO, the *Zero Redundancy Optimizer* (Rajbhandari et al. 2020),
# keeps each byte once and fetches it when it is needed.
#
# This takes about 20 minutes. Afterwards you can say what each ZeRO stage shards and saves, what it sends for that, why
# ZeRO-3 can peak above ZeRO-2, and of what the percentages in tutorials are percentages.

# %%
import plotly.graph_objects as go

import lab
from engine.formulas import parameters

# %% [markdown]
# ## Sixteen bytes for each parameter
#
# Four replicas, four times the same training step, with ZeRO stage 0 (plain data parallel) to 3. Each run uses four real
# processes, and each ends with the same weights as one process. Look at the memory of plain data parallel first.

# %%
runs = {stage: lab.run(dp=4, zero=stage, microbatches=4, steps=1) for stage in range(4)}
assert all(run.summary["parity"]["passed"] for run in runs.values())
lab.view(runs[0], "memory")

# %% [markdown]
# Four equal bars. Below the *activations* (what forward keeps for backward) lies the *model state*: parameters,
# gradients, and the optimizer's state. Adam keeps two numbers for each parameter, a running mean and a running square of
# its gradient.

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
# All four ranks hold the same 16 bytes. ZeRO-1 cuts the optimizer's state into four *shards*, one a rank: rank i updates
# only its quarter of the parameters, then all ranks gather the four quarters. **How much model state does that save?**

# %%
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
FORMULA = {0: (4, 4, 8), 1: (4, 4, 8 / 4), 2: (4, 4 / 4, 8 / 4), 3: (4 / 4, 4 / 4, 8 / 4)}
for stage, run in runs.items():
    params, grads, optimizer = state(run)
    saved = 1 - (params + grads + optimizer) / 16
    print(f"ZeRO-{stage}: {params:g} + {grads:g} + {optimizer:g} = {params + grads + optimizer:>2g} bytes, saves {saved:.2%}")
    assert tuple(state(run)) == FORMULA[stage]
lab.view(runs[3], "memory")

# %% [markdown]
# With N replicas the state of a rank is 16, 8 + 8/N, 4 + 12/N and 16/N bytes for each parameter. That is the whole of
# ZeRO's arithmetic; the rest is when to fetch what.
#
# ## The percentages tutorials quote
#
# Large models train in *mixed precision*: parameters and gradients take 2 bytes each, while Adam keeps its two numbers
# and a master copy of the parameters in fp32, 12 bytes. Also 16, but split 2 + 2 + 12. The lab runs fp32; mixed precision
# it can only simulate so far, which books the same ledger without data.

# %%
mixed = {stage: lab.simulate(dp=4, zero=stage, precision="mixed16") for stage in range(4)}
for stage, run in mixed.items():
    params, grads, optimizer = state(run)
    saved = 1 - (params + grads + optimizer) / 16
    print(f"ZeRO-{stage}: {params:g} + {grads:g} + {optimizer:g} = {params + grads + optimizer:>4g} bytes, saves {saved:.2%}")
assert state(mixed[0]) == [2, 2, 12] and [sum(state(run)) for run in mixed.values()] == [16, 7, 5.5, 4]

# %% [markdown]
# **"The optimizer's state is four times the parameters."** Wrong for Adam: twice in fp32, six times in mixed precision.

# %%
assert state(runs[0])[2] / state(runs[0])[0] == 2 and state(mixed[0])[2] / state(mixed[0])[0] == 6

# %% [markdown]
# **"ZeRO-1 saves 75 %, ZeRO-2 87.5 %, ZeRO-3 95 %."** Each number is true of something. Here is the share of *all* model
# state that each stage saves with N replicas. The dotted lines are the three claims.

# %%
REPLICAS = [2, 4, 8, 16, 20, 32, 64, 128, 256]


def saving(stage, n, precision):
    """Share of a rank's model state that a ZeRO stage saves on n replicas."""
    parts = {"fp32": (4, 4, 8), "mixed": (2, 2, 12)}[precision]
    return sum(parts[3 - stage :]) / 16 * (1 - 1 / n)


for stage, run in runs.items():
    assert saving(stage, 4, "fp32") == 1 - sum(state(run)) / 16
    assert saving(stage, 4, "mixed") == 1 - sum(state(mixed[stage])) / 16
figure = go.Figure(layout={"title": "Only ZeRO-3 saves ever more", "height": 380})
for stage, dash in ((1, "dot"), (2, "dash"), (3, "solid")):
    line = [saving(stage, n, "mixed") for n in REPLICAS]
    figure.add_scatter(x=REPLICAS, y=line, name=f"ZeRO-{stage}, mixed precision", line_dash=dash)
for claim in (0.75, 0.875, 0.95):
    figure.add_hline(y=claim, line_dash="dot", line_color="grey", annotation_text=f"claimed: {claim:.1%}")
figure.update_xaxes(title="replicas N", type="log", tickvals=REPLICAS)
figure.update_yaxes(title="saved share of model state", tickformat=".0%", range=[0, 1.05])

# %%
assert saving(1, 4, "fp32") == 0.375 and saving(1, 4, "mixed") == 0.5625
assert saving(1, float("inf"), "mixed") == 0.75 and saving(2, float("inf"), "mixed") == 0.875
assert saving(3, 4, "fp32") == 0.75 and saving(3, 8, "fp32") == 0.875 and saving(3, 20, "fp32") == 0.95
print(f"ZeRO-1 with N = 4: {saving(1, 4, 'fp32'):.1%} (fp32), {saving(1, 4, 'mixed'):.2%} (mixed precision)")
print(f"ZeRO-2 with N = 4: {saving(2, 4, 'fp32'):.2%} (fp32), {saving(2, 4, 'mixed'):.2%} (mixed precision)")

# %% [markdown]
# - **75 %** for ZeRO-1 with N = 4 is true of the *optimizer's state* alone. Of all model state it is 37.5 % in fp32 and
#   56.25 % in mixed precision, where 75 % is the limit for ever more replicas.
# - **87.5 %** for ZeRO-2 is the limit in mixed precision, 14 of 16 bytes. No number of replicas reaches it.
# - **95 %** for ZeRO-3 is reached at N = 20: it saves 1 − 1/N, which is 75 % at N = 4 and 87.5 % at N = 8.
#
# ## The gather peak
#
# ZeRO-3 holds a quarter of the parameters, but a layer needs all of its own to compute. So before a layer runs, its
# parameters are *gathered* from all ranks, and released afterwards. In the ledger of rank 0 they are the flickering band.

# %%
lab.view(runs[3], "memory_over_time", rank=0)

# %% [markdown]
# How high does it flicker? By default the lab gathers one layer ahead (*prefetch*), so that the gather hides behind the
# layer before. Then two layers are there at once. The bounds come from layer sizes alone: a block of width h has
# 12 h² + 13 h parameters (four matrices, biases, two norms).

# %%
h, Ψ = 64, parameters(runs[3].job)
block = 4 * (12 * h * h + 13 * h)  # bytes
choices = {"no prefetch": {"prefetch": 0}, "one ahead": {}, "three ahead": {"prefetch": 3}, "kept": {"keep_gathered": True}}
gathered = {}
for name, options in choices.items():
    held = lab.run(dp=4, zero=3, steps=1, **options).summary["memory"]["per_rank"][0]
    gathered[name] = held["gathered_peak"]
    print(f"{name:>12}: {held['gathered_peak']:>7,} bytes gathered, {held['gathered_peak'] / block:.2f} blocks")
assert list(gathered.values()) == [block, 2 * block, 4 * block, 4 * Ψ]

# %% [markdown]
# *Kept* means: gathered once a step and released at its end, 4 bytes for each parameter on top of the shard. Then
# ZeRO-3 holds more than ZeRO-2 does, and that is one answer to a question often asked: **why does ZeRO-3 need more memory
# than ZeRO-2?** Small models give another. Here is a model of a single block:

# %%
kept, small2, small3 = (
    lab.run(dp=4, steps=1, **options)
    for options in ({"zero": 3, "keep_gathered": True}, {"zero": 2, "layers": 1}, {"zero": 3, "layers": 1})
)
peaks = [run.summary["memory"]["per_rank"][0]["total_peak"] for run in (runs[2], kept, small2, small3)]
print(f"4 blocks: ZeRO-2 peaks at {peaks[0]:,} bytes, ZeRO-3 with kept parameters at {peaks[1]:,}")
print(f"1 block:  ZeRO-2 peaks at {peaks[2]:,} bytes, ZeRO-3 as usual at {peaks[3]:,}")
assert peaks[1] - peaks[0] == Ψ  # the shard: 4 bytes / 4 ranks for each parameter
assert peaks[3] > peaks[2] and small3.summary["parity"]["passed"]

# %% [markdown]
# With one block, two layers at once are most of the model: what is gathered outweighs what sharding saved. It takes many
# layers, so that two of them are a small part, for ZeRO-3 to pay. And it never touches activations and buffers: in the
# picture below the state is the smaller part of the bar.

# %%
lab.compare(runs[2], runs[3])

# %% [markdown]
# ## What it costs to send
#
# Plain data parallel sends 2(N−1)/N · 4Ψ bytes a step: an all-reduce is a *reduce-scatter* (each rank ends with its shard
# of the sum) followed by an *all-gather* (each rank collects all shards). ZeRO uses exactly these halves. In units of
# (N−1)/N · 4Ψ, measured on rank 0:

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
# gathered for the forward and again for the backward. **"Low, medium, high" is wrong for stages 1 and 2.** But the paper
# counts a step without accumulation. The runs above had four micro-batches:

# %%
M = 4
for stage, run in runs.items():
    print(f"ZeRO-{stage}, {M} micro-batches: {sum(volume(run).values()):g} = {volume(run)}")
assert [sum(volume(run).values()) for run in runs.values()] == [2, 2, M + 1, 3 * M]

# %% [markdown]
# ZeRO-2 has no room for whole gradients between micro-batches, so it reduces after each: m + 1. ZeRO-3 also gathers anew
# each time: 3m. Keeping the gathered parameters gives the traffic of ZeRO-2 back, for memory:

# %%
many_kept = lab.run(dp=4, zero=3, microbatches=M, keep_gathered=True, steps=1)
print(f"ZeRO-3, kept: {sum(volume(many_kept).values()):g} = {volume(many_kept)}")
assert sum(volume(many_kept).values()) == M + 1

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
# Plain data parallel needs 120 GB of state, more than the 80 GB of an A100. ZeRO-1 on four of them already fits, with one
# sequence of activations. On 64, this is what a rank holds, activations and buffers included:

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
assert f"{saving(2, 8, 'mixed'):.1%}" == "76.6%"
