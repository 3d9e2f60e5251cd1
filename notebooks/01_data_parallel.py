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
from engine.cluster.cluster import load_cluster
from engine.cluster.scaled_links import scaled
from engine.model.data import global_batch, microbatches
from engine.prediction.formulas import parameters
from lab.views import figures

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
# Every lane holds the same boxes, since every replica does the same work on different text. (Their lengths differ here:
# four ranks share the cores of this machine and take turns.) Different text gives different gradients, so before the
# update they are added up: an *all-reduce* sums a tensor over all ranks and leaves the sum on each of them. This is
# what rank 0 sent for that in one step:


# %%
def data_row(run):
    """What one rank did on the data axis in a step: operation, count, bytes."""
    [row] = [row for row in run.communication_table if row["axis"] == "dp"]
    return row


Ψ = parameters(run.job)
S = 4 * Ψ  # bytes of gradients: one fp32 number for each parameter
print(f"{Ψ:,} parameters, so {S:,} bytes of gradients")
print(f"{data_row(run)['count']} × {data_row(run)['op']}, equal to one process: {run.summary['parity']['passed']}")
assert data_row(run)["op"] == "all_reduce" and run.summary["parity"]["passed"]

# %% [markdown]
# ## 10,000 samples on four ranks
#
# Tutorials explain data parallelism with 10,000 images: each of 4 GPUs takes 2,500, and all make the same update. We
# check it with 10,000 short texts, since the model here reads text. Data parallelism does not care: it cuts the batch
# between samples and never looks inside one.
#
# Four ranks see 2,500 samples each, one process sees all 10,000. **How far apart are the weights after two updates?**

# %% jupyter={"source_hidden": true}
TEN_THOUSAND = {"batch": 10_000, "microbatches": 1, "seq": 8, "hidden": 16, "heads": 2, "layers": 1, "steps": 2}
EQUAL, ROUNDING, VISIBLE = "not at all: every bit is equal", "by rounding: the last digits", "visibly"


def how_far(run):
    parity = run.summary["parity"]
    return VISIBLE if not parity["passed"] else ROUNDING if parity["param_max_abs_diff"] else EQUAL


lab.predict(
    "01-same-update",
    "Four ranks with 2,500 samples each, and one process with all 10,000. After two updates their weights differ…",
    choices={
        EQUAL: "Tempting, since the sums are the same. But they are added in another order, and fp32 rounds each sum.",
        ROUNDING: "Four partial sums, added up, are the whole sum, but for rounding.",
        VISIBLE: "So it would be without the all-reduce, each replica going its own way on its own samples.",
    },
    run=lambda: lab.run(dp=4, **TEN_THOUSAND),
    truth=how_far,
)

# %% [markdown]
# Now step by step. First, who reads what? The batch is one array of 10,000 rows, and replicas take contiguous parts.

# %%
big = lab.run(dp=4, **TEN_THOUSAND)
batch = global_batch(big.job, step=0)  # [10000, 9]: 8 tokens to read, each with the next to predict
shares = [microbatches(big.job, 0, rank).reshape(-1, 9) for rank in range(4)]
for rank, share in enumerate(shares):
    print(f"rank {rank}: {len(share):,} samples, the first one {bytes(share[0].tolist())!r}")
assert [len(share) for share in shares] == [2500] * 4
assert np.array_equal(np.concatenate(shares), batch)

# %% [markdown]
# Then, did all make the same update? Each rank ends with a *fingerprint*, a digest of all its weights: where two are
# equal, so is every bit of the weights. And each rank compares its weights with those of one process that trained on
# all 10,000 samples; the largest difference found on any rank is kept.

# %%
for rank, fingerprint in enumerate(big.info.fingerprints):
    print(f"rank {rank}: weights {fingerprint}")
print(f"largest difference from one process: {big.summary['parity']['param_max_abs_diff']:.1e}")
assert len(set(big.info.fingerprints)) == 1
assert big.summary["parity"]["passed"] and big.summary["parity"]["param_max_abs_diff"] < 1e-6

# %% [markdown]
# **Verdict on the claim: holds.** 2,500 each, and the same update everywhere: among replicas to the last bit, against
# one process up to rounding. One thing must be right for it: the loss is divided by the number of tokens in the
# *global* batch. Replicas that divide by their own count and then add up make gradients four times too large.
#
# ## When gradients travel
#
# Backward finishes the last layer first. Its gradients can leave at once, while earlier layers still compute. To send
# neither many tiny tensors nor one big one at the end, gradients are packed into *buckets*. This is what every rank
# executed after its forwards:

# %%
for action in (one for one in run.program.lanes[0] if one.kind != "forward"):
    print("      ↳ " if action.kind == "reduce" else "", action, sep="")

# %% [markdown]
# A `reduce` only *starts* an all-reduce. The `step` at the end waits for all of them. How large should a bucket be? One
# that holds everything is full only when backward is over, and then there is nothing left to hide it behind.
#
# On this machine ranks and messages share the cores, so times say little. We therefore *replay* each run on a described
# cluster: the operations that really ran, with the times that they would take there. It is `toy-2x4`, with links slowed
# 16 times so that the reductions are easy to see.

# %%
slow = scaled(load_cluster("toy-2x4"), inside_bandwidth=1 / 16, across_bandwidth=1 / 16)
buckets = {kb: lab.run(dp=4, microbatches=1, steps=1, bucket_kb=kb) for kb in (160, 450, 10_000)}
replays = {kb: one.replay(slow) for kb, one in buckets.items()}
for kb, replay in replays.items():
    hidden, count = replay.summary["overlap"]["dp"], data_row(replay)["count"]
    print(f"up to {kb:>6,} KiB: {count} all-reduces, {hidden:.0%} of their time hidden under backward")
    assert data_row(replay)["logical_bytes"] == 1.5 * S  # whatever the bucket
small, medium, huge = (replay.summary["overlap"]["dp"] for replay in replays.values())
assert small > medium > huge == 0

# %%
lab.compare(replays[160], replays[10_000])

# %% [markdown]
# In A, reductions run under the backward; in B, one comes after it, and all ranks wait. (torch's DDP does the same with
# buckets of 25 MiB by default: Li et al. 2020, *PyTorch Distributed*, section 3.2.2 on buckets, 3.2.3 on overlap.)
# Some of it can never hide: the last bucket holds the first layers, whose gradients come last.
#
# *Overlap* moves when bytes travel, never what is added up. Switched off, each reduction is waited for where it starts,
# and the weights are still the same to the last bit:

# %%
on, off = (lab.run(dp=4, microbatches=1, steps=2, overlap=choice) for choice in (True, False))
for name, one in (("on", on), ("off", off)):
    hidden = one.replay(slow).summary["overlap"]["dp"]
    print(f"overlap {name:>3}: weights {one.info.fingerprints[0]}, {hidden:.0%} hidden")
    assert (hidden == 0) == (one is off)
assert [s["loss"] for s in on.steps] == [s["loss"] for s in off.steps]
assert on.info.fingerprints == off.info.fingerprints

# %% [markdown]
# ## How many bytes?
#
# The usual algorithm is the *ring*. With n ranks, gradients are cut into n slices, and each rank sends one slice at a
# time to the next rank only: n − 1 rounds to add the slices up, n − 1 more to pass the finished ones round.
#
# Four replicas become 64. **By how much do the bytes grow that each rank of the ring sends in a step?**

# %% jupyter={"source_hidden": true}
SAME, THIRD, THREE, SIXTEEN = "not at all", "by about a third", "to 3 times as many", "to 16 times as many"


def growth(run):
    ratio = data_row(run)["logical_bytes"] / (1.5 * S)
    return min({SAME: 1, THIRD: 4 / 3, THREE: 3, SIXTEEN: 16}.items(), key=lambda item: abs(item[1] - ratio))[0]


lab.predict(
    "01-bytes",
    "From 4 to 64 replicas, the bytes that each rank of the ring sends in a step grow…",
    choices={
        SAME: "Nearly, and more nearly so for ever more ranks. From 4 on there is still a little to grow.",
        THIRD: "Each rank sends 2(n−1) slices of S/n bytes: 1.5 S for n = 4, 1.97 S for n = 64, never 2 S.",
        THREE: "3 is log₂ 64 ÷ log₂ 4, the depth of a tree. A deeper tree has more hops, not more bytes a rank.",
        SIXTEEN: "Tempting: 16 times the ranks. But slices get smaller as fast as rounds get more.",
    },
    run=lambda: lab.simulate(dp=64, batch=64, microbatches=1, cluster="a100-dgx"),
    truth=growth,
    then=lambda run: lab.view(run, "communication"),
)

# %% [markdown]
# Two and four replicas really run here. The others are simulated: the same program, without processes. What a run
# records are the calls and the sizes of their tensors; *bytes sent* is such a size times the ring's 2(n−1)/n. That the
# sockets of four processes really send so much is counted, to 1 %, by a test of the lab,
# `tests/engine/test_wire_bytes.py`.

# %%
more = [lab.run(dp=n, microbatches=1, batch=64, steps=1) for n in (2, 4)]
more += [lab.simulate(dp=n, microbatches=1, batch=64, cluster="a100-dgx") for n in (8, 16, 64)]
for one in more:
    n, sent = one.job.plan.dp, data_row(one)["logical_bytes"]
    print(f"n = {n:>2}, {one.status:>9}: {sent:>9,} bytes = {sent / S:.4f} · S")
    assert sent * n == 2 * (n - 1) * S  # so the buckets together are S, no gradient twice
lab.picture(figures.all_reduce_bytes, more)

# %% [markdown]
# "The cost of an all-reduce grows linearly with the number of GPUs": in *bytes*, no, 2(n−1)/n · S is nearly flat. In
# *hops*, yes: a ring takes 2(n−1) of them, one after the other, and for small tensors that is what counts. Notebook 06
# weighs the two.
#
# ## Gradient accumulation
#
# Memory holds only so many samples at a time. *Gradient accumulation* runs m *micro-batches* one after the other, adds
# up their gradients, and reduces once at the end. Each rank below takes 4 sequences at a time: once, twice, or four
# times before it talks.

# %%
grown = {m: lab.run(dp=4, batch=16 * m, microbatches=m, steps=1) for m in (1, 2, 4)}


def activations(run):
    return run.summary["memory"]["per_rank"][0]["activations_peak"]


for m, one in grown.items():
    row, samples = data_row(one), one.job.training.batch
    print(f"m = {m}, {samples} samples: {row['count']} all-reduces,", end=" ")
    print(f"{row['logical_bytes'] / samples:,.0f} bytes a sample, activations {activations(one):,} bytes")
    assert row["count"] == data_row(grown[1])["count"] and row["logical_bytes"] == 1.5 * S
    assert activations(one) == activations(grown[1])

# %% [markdown]
# Four times the samples with the same all-reduces and the same memory: a quarter of the traffic for each sample. It is
# no free lunch, since the optimizer now steps once for four times the samples. But that step is the step of the big
# batch. Cut into 1, 2 or 4 micro-batches, the same 64 samples give the same loss and gradient, up to rounding:

# %%
cut = {m: lab.run(dp=4, batch=64, microbatches=m, steps=1) for m in (1, 2, 4)}
for m, one in cut.items():
    [step] = one.steps
    print(f"m = {m}: loss {step['loss']:.6f}, gradient norm {step['grad_norm']:.6f},", end=" ")
    print(f"activations {activations(one):,} bytes")
    assert one.summary["parity"]["passed"] and activations(one) * m == activations(cut[1])
    assert abs(step["loss"] / cut[1].steps[0]["loss"] - 1) < 1e-6

# %% [markdown]
# ## Try it
#
# Move the number of replicas and of micro-batches. Then switch to the replay and slow the links down: the reductions
# grow out from under the backward until all ranks wait for them.

# %%
lab.explore(("dp", "microbatches", "link_speed"), ("timeline", "communication"), dp=4, microbatches=1)

# %% [markdown]
# ## What it does not save
#
# Replicas share the work, not the memory. Each of the four holds all parameters, all gradients and all of the
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
# 1. Runs with 4 and with 8 replicas train on the same global batch. Does each replica of the second send fewer bytes,
#    since it has half as many samples?
# 2. Why can overlap never hide the reduction of the embedding?
# 3. You halve the micro-batch and double their number. What happens to traffic, activations, and the result?
#
# <details><summary>Answers</summary>
#
# 1. No. What is sent is one gradient for each parameter, whatever the number of samples: 1.5 S against 1.75 S.
# 2. Backward ends with the first layer, so its gradients come last. Nothing is left to compute but the update, which
#    waits for them.
# 3. Activations halve. Traffic stays: one reduction a step. The result stays too, up to rounding.
#
# </details>
