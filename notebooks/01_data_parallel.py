# %% [markdown]
# # 01 · Data parallel
#
# The simplest way to use four processes: give each of them the whole model and a quarter of the data.
#
# This takes about 20 minutes. Afterwards you can say what each replica does in a step, why all of them stay equal, when
# gradients travel, how many bytes that takes, and what gradient accumulation saves.

# %%
import numpy as np

import lab
from engine.data import global_batch, microbatches
from engine.formulas import parameters
from lab import figures

# %% [markdown]
# ## One step of four replicas
#
# A *rank* is one process of a distributed job. Four real processes start below. Each holds a full copy of the model, a
# *replica*, and reads its own quarter of the batch. In the picture each rank has a lane: forward, then backward, and
# below them the data stream, where gradients are sent. Choose a rank in one view and it is marked in the other.

# %%
run = lab.run(dp=4, microbatches=1, steps=2)
lab.view(run, "timeline", "grid")

# %% [markdown]
# The lanes look alike because every replica does the same work on different text. They differ in one thing only: the
# tokens. So before the update, gradients must be made equal. An *all-reduce* adds up one tensor over all ranks and
# leaves the sum on each of them. These are the operations that rank 0 carried out on the data axis, and their bytes:

# %%
Ψ = parameters(run.job)
S = 4 * Ψ  # a gradient for each parameter, 4 bytes in fp32
[row] = [row for row in run.communication_table if row["axis"] == "dp"]
assert row["op"] == "all_reduce" and run.summary["parity"]["passed"]
print(f"{Ψ:,} parameters, so S = {S:,} bytes of gradients; they go out in {row['count']} all-reduces a step.")
print(f"equal to one process: {run.summary['parity']['passed']}")

# %% [markdown]
# ## 10,000 samples on four ranks
#
# Tutorials explain data parallelism with 10,000 images: each of 4 GPUs takes 2,500, and all make the same update. We
# check it with 10,000 short texts, since the model here reads text. Nothing in data parallelism cares: it cuts the
# batch between samples and never looks inside one.
#
# Four ranks saw different samples, one process saw all of them. Both make two updates. **How far apart are the
# weights?**

# %% jupyter={"source_hidden": true}
lab.predict(
    "01-same-update",
    "Largest difference between any weight of any of the four replicas and the weights of one process on all samples:",
    choices={
        "none: equal to the last bit": "Close. Sums of the same numbers in another order round differently.",
        "rounding: the last digits of fp32": "The sum of four partial sums is the sum, but for rounding.",
        "visible: each replica learned from other samples": (
            "It would be so without the all-reduce. With it, every replica steps along the gradient of all samples."
        ),
    },
    run=lambda: lab.run(dp=4, batch=10_000, microbatches=1, seq=8, hidden=16, heads=2, layers=1, steps=2),
    truth=lambda run: (
        "none: equal to the last bit"
        if run.summary["parity"]["param_max_abs_diff"] == 0
        else "rounding: the last digits of fp32"
        if run.summary["parity"]["passed"]
        else "visible: each replica learned from other samples"
    ),
)

# %% [markdown]
# The same run, step by step. First: who read what? The batch is one array of 10,000 rows, and replicas take contiguous
# parts of it.

# %%
big = lab.run(dp=4, batch=10_000, microbatches=1, seq=8, hidden=16, heads=2, layers=1, steps=2)
whole = global_batch(big.job, step=0)  # [10000, 9]: 8 tokens to read, each with the next one to predict
shares = [microbatches(big.job, step=0, dp_index=rank).reshape(-1, 9) for rank in range(4)]
for rank, share in enumerate(shares):
    print(f"rank {rank}: {len(share):,} samples, the first is {bytes(share[0].tolist())!r}")
assert [len(share) for share in shares] == [2500] * 4
assert np.array_equal(np.concatenate(shares), whole)

# %% [markdown]
# Then: did all make the same update? After training, every rank compared each of its weights with those of one process
# that trained on all 10,000. The largest difference over all ranks is printed here. Two replicas are therefore at most
# twice that apart. And in every step all ranks must report the same loss and gradient norm, bit for bit, or the run
# fails.

# %%
parity = big.summary["parity"]
assert parity["passed"] and parity["param_max_abs_diff"] < 1e-6
print(
    f"weights: largest difference {parity['param_max_abs_diff']:.1e}, on any of 4 ranks, after {len(big.steps)} steps"
)
print(f"loss:    largest difference {parity['loss_max_abs_diff']:.1e}, at a loss of {big.steps[-1]['loss']:.4f}")

# %% [markdown]
# **Verdict: holds.** 2,500 each, same update everywhere. It needs one care: losses are divided by the number of tokens
# in the *global* batch. A replica that divides by its own count and then sums gets gradients four times too large.
#
# ## When gradients travel
#
# Backward finishes the last layer first. Its gradients can leave at once, while earlier layers are still computing. To
# send neither thousands of small tensors nor one big one at the end, gradients are packed into *buckets*. This is the
# second half of the program that each rank executed, in order:

# %%
for action in run.program.lanes[0][6:]:
    print(("        ↳ " if action.kind == "reduce" else "  ") + str(action))

# %% [markdown]
# A `reduce` only *starts* an all-reduce; the `step` at the end waits for all of them. How large should a bucket be? One
# huge bucket is full only when backward is over, so nothing is left to hide it behind. Here are three sizes, replayed
# on a described cluster (`toy-2x4`), because on this machine ranks and messages share the cores.

# %%
sizes = {kb: lab.run(dp=4, microbatches=1, steps=1, bucket_kb=kb) for kb in (160, 450, 10_000)}
hidden = {}
for kb, one in sizes.items():
    [row] = [row for row in one.communication_table if row["axis"] == "dp"]
    hidden[kb] = one.replay("toy-2x4").summary["overlap"]["dp"]
    print(f"buckets of {kb:>6,} KiB: {row['count']} all-reduces, {hidden[kb]:.0%} of their time hidden under backward")
    assert row["logical_bytes"] == 2 * 3 * S // 4  # the bytes are the same, whatever the bucket
assert hidden[160] > hidden[450] > hidden[10_000] == 0

# %%
lab.view(sizes[160].replay("toy-2x4"), "timeline")

# %%
lab.view(sizes[10_000].replay("toy-2x4"), "timeline")

# %% [markdown]
# torch's DDP takes buckets of 25 MiB (Li et al. 2020, *PyTorch Distributed*, section 3.2.3), which suits models with
# hundreds of them. The last bucket can never hide: it holds the first layers, whose gradients come last.
#
# Overlap moves *when* bytes travel, never *what* is added up. Switched off, each reduction is waited for where it
# starts; loss and gradient norm stay the same to the last bit.

# %%
on, off = (lab.run(dp=4, microbatches=1, steps=2, overlap=choice) for choice in (True, False))
for a, b in zip(on.steps, off.steps, strict=True):
    print(f"step {a['step']}: loss {a['loss']!r} with overlap, {b['loss']!r} without")
    assert (a["loss"], a["grad_norm"]) == (b["loss"], b["grad_norm"])
assert on.summary["parity"]["param_max_abs_diff"] == off.summary["parity"]["param_max_abs_diff"]
shares_hidden = [one.replay("toy-2x4").summary["overlap"]["dp"] for one in (on, off)]
print(f"hidden on toy-2x4: {shares_hidden[0]:.0%} with overlap, {shares_hidden[1]:.0%} without")
assert shares_hidden[0] > 0.5 and shares_hidden[1] == 0

# %% [markdown]
# ## How many bytes?
#
# The usual algorithm is the *ring*: each rank sends only to the next one, first adding up slices of S/n bytes for n−1
# rounds, then passing the finished slices round for another n−1.
#
# Four replicas become 64. **By how much do the bytes that each rank sends in a step grow?**

# %% jupyter={"source_hidden": true}
dp64 = {"dp": 64, "batch": 64, "microbatches": 1, "cluster": "a100-dgx"}
lab.predict(
    "01-bytes",
    "From 4 to 64 replicas of this model, each rank sends per step:",
    choices={
        "16 times as much": "Tempting: 16 times the ranks. But each rank still has one gradient to share.",
        "3 times as much": "log₂ 64 ÷ log₂ 4 = 3: the depth of a tree. Trees take hops, not bytes.",
        "about a third more": "2(n−1)/n goes from 1.5 to 1.97 and can never pass 2.",
        "exactly as much": "Nearly, and in the limit. The factor 2(n−1)/n still grows a little.",
    },
    run=lambda: lab.simulate(**dp64),
    truth=lambda run: (
        "about a third more"
        if 1.2 < next(r["logical_bytes"] for r in run.communication_table if r["axis"] == "dp") / (1.5 * S) < 1.4
        else "exactly as much"
    ),
)

# %% [markdown]
# Counted, not assumed: two and four replicas really run, the others are simulated: the same program, without processes.

# %%
more = [lab.run(dp=n, microbatches=1, batch=64, steps=1) for n in (2, 4)]
more += [lab.simulate(dp=n, microbatches=1, batch=64, cluster="a100-dgx") for n in (8, 16, 64)]
for one in more:
    n = one.job.plan.dp
    [row] = [row for row in one.communication_table if row["axis"] == "dp"]
    how = "simulated" if one.status == "simulated" else "counted"
    print(f"n = {n:>2}: {row['logical_bytes']:>9,} bytes = {row['logical_bytes'] / S:.4f} · S  ({how})")
    assert row["logical_bytes"] * n == 2 * (n - 1) * S  # exactly
lab.picture(figures.all_reduce_bytes, more)

# %% [markdown]
# So is "all-reduce cost grows linearly with the number of GPUs" wrong? In bytes, yes: 2(n−1)/n · S is flat. In *hops*,
# no: a ring takes 2(n−1) of them one after the other, so small tensors do get slower. Notebook 06 weighs the two.
#
# ## Gradient accumulation
#
# Memory holds only so many samples at a time. *Gradient accumulation* runs several *micro-batches* one after the other,
# adds up their gradients, and reduces once at the end. Here each rank takes 4 sequences at a time, and 1, 2 or 4 times
# before it talks.

# %%
grown = {m: lab.run(dp=4, batch=16 * m, microbatches=m, steps=1) for m in (1, 2, 4)}
for m, one in grown.items():
    [row] = [row for row in one.communication_table if row["axis"] == "dp"]
    batch, held = one.job.training.batch, one.summary["memory"]["per_rank"][0]["activations_peak"]
    per_sample = row["logical_bytes"] / batch
    print(f"{m} micro-batches: {row['count']} all-reduces for {batch} samples, {per_sample:,.0f} bytes a sample,")
    print(f"   activations at most {held:,} bytes")
    assert row["count"] == 6 and row["logical_bytes"] == 1.5 * S
    assert held == grown[1].summary["memory"]["per_rank"][0]["activations_peak"]

# %% [markdown]
# Four times the samples, no byte more, and no more memory: a quarter of the traffic for each sample. It is no free
# lunch: the optimizer also steps only once for four times the samples. But the step is the step of the big batch: split
# into 1, 2 or 4 micro-batches, the same 64 samples give the same loss and gradient, up to rounding.

# %%
split = {m: lab.run(dp=4, batch=64, microbatches=m, steps=1) for m in (1, 2, 4)}
for m, one in split.items():
    held = one.summary["memory"]["per_rank"][0]["activations_peak"]
    print(f"64 samples in {m} micro-batches: loss {one.steps[0]['loss']:.6f}, activations at most {held:,} bytes")
    assert one.summary["parity"]["passed"]
    assert abs(one.steps[0]["loss"] / split[1].steps[0]["loss"] - 1) < 1e-6
    assert held * m == split[1].summary["memory"]["per_rank"][0]["activations_peak"]

# %% [markdown]
# ## Try it
#
# Move the number of replicas and of micro-batches. Then slow the links down, and watch the reductions grow out from
# under the backward until all ranks wait for them.

# %%
lab.explore(knobs=("dp", "microbatches", "link_speed"), views=("timeline", "communication"), dp=4, microbatches=1)

# %% [markdown]
# ## What it does not save
#
# Replicas share the work, not the memory: each of the four holds all parameters, all gradients and all of the
# optimizer's state. With fp32 Adam that is 4 + 4 + 8 bytes for each parameter, four times over.

# %%
for held in run.summary["memory"]["per_rank"]:
    state = held["params"] + held["grads"] + held["optimizer"]
    print(f"rank {held['rank']}: {state / Ψ:g} bytes for each parameter")
    assert state == 16 * Ψ
lab.view(run, "memory")

# %% [markdown]
# Four copies of the same 16 bytes, where one would do. Notebook 02 removes the other three.
#
# ## Three questions
#
# 1. A run with 4 replicas and one with 8 train on the same global batch. Does each replica of the second send fewer
#    bytes, since it has half as many samples?
# 2. Why is the all-reduce of the embedding the one that overlap cannot hide?
# 3. You halve the micro-batch and double their number. What changes: traffic, memory, the result?
#
# <details><summary>Answers</summary>
#
# 1. No. What is sent is one gradient for each parameter, whatever the number of samples: 1.5 S against 1.75 S.
# 2. Its gradients come last: backward ends with the first layer, and no computation but the update is left.
# 3. Activations halve. Traffic stays, since there is one reduction a step. The result stays too, up to rounding.
#
# </details>
