# %% [markdown]
# # 05 · The 3D grid
#
# Data, tensor and pipeline parallelism multiply: 2 × 2 × 2 makes eight ranks, each with three coordinates. Which
# ranks talk with which, and where they sit, decides how fast the same plan runs.
#
# 20 minutes. Afterwards you can say
# - which ranks form a group, for any rank and any axis,
# - what a *rank order* such as `tp-dp-pp` means, and which axis it puts between the nodes,
# - what a bad placement costs, in bytes and in time,
# - why 64 GPUs and "tensor 4 × pipeline 3" do not go together.

# %%
from itertools import product

import numpy as np

import lab
from engine.cluster.cluster import load_cluster
from engine.job.mesh import Mesh, mesh_of
from lab.analysis import bytes_between
from lab.views.figures import grid

# %% [markdown]
# ## Eight ranks, three coordinates
#
# x is data: which part of the batch. y is tensor: which slice of every matrix. z is pipeline: which layers. Choose a
# rank in the grid: the ranks it shares a group with light up, and its lane is marked in the timeline.

# %%
run = lab.run(dp=2, tp=2, pp=2, steps=1)
lab.view(run, "grid", "timeline")

# %% [markdown]
# The whole grid is one line of numpy. The *rank order* names the axes, the fastest first: under `tp-dp-pp` rank 1 is
# the tensor neighbour of rank 0, and the pipeline coordinate changes last.

# %%
cube = np.arange(8).reshape(2, 2, 2)  # [pp, dp, tp]: the last index is the fastest
mesh = mesh_of(run.job)
for rank in range(mesh.size):
    at = mesh.coordinate(rank)
    assert cube[at.pp, at.dp, at.tp] == rank
    print(f"rank {rank}: {at}")

# %% [markdown]
# ## Groups
#
# A *group* along an axis is the set of ranks that differ in that coordinate only. Every rank is in three of them: it
# sums activations with its tensor group, sums gradients with its data group, and hands activations on in its pipeline
# group.

# %%
for axis, what in (("tp", "same tokens, other slices"), ("dp", "same weights, other tokens"), ("pp", "other layers")):
    print(f"{axis}: {sorted(mesh.groups(axis))}  {what}")

# %% [markdown]
# Did the eight processes really talk so? Every operation they recorded names its peers.

# %%
for axis in ("tp", "dp", "pp"):
    seen = {tuple(sorted(op["peers"])) for op in run.ops if op["group"] == axis and op["kind"] != "wait"}
    assert seen == {tuple(group) for group in mesh.groups(axis)}
    print(f"{axis}: {len(seen)} groups seen in the recording, {sorted(seen)}")

# %% [markdown]
# Megatron-LM makes its groups by the same rule. The docstring of `initialize_model_parallel` in its
# `megatron/core/parallel_state.py` lists them for 16 GPUs with tensor 2 and pipeline 4; here is what ours makes of
# that, compared with that list.

# %%
sixteen = Mesh(dp=2, tp=2, pp=4)
assert sorted(sixteen.groups("tp")) == [[g, g + 1] for g in range(0, 16, 2)]
assert sorted(sixteen.groups("dp")) == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
assert sorted(sixteen.groups("pp")) == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
for axis in ("tp", "dp", "pp"):
    print(f"{len(sixteen.groups(axis))} groups along {axis}: {sorted(sixteen.groups(axis))}")

# %% [markdown]
# ## Placement: which axis crosses the nodes?
#
# Ranks fill nodes in order: on `toy-2x4`, ranks 0 to 3 sit in one node and 4 to 7 in the other. So the order of the
# axes is a placement. With 2 × 2 × 2 ranks, one axis has to cross, and it is the one named last.

# %%
toy = load_cluster("toy-2x4")


def crosses(mesh, axis, cluster):
    """How many groups of an axis have members in several nodes."""
    return sum(len({cluster.node_of(rank) for rank in group}) > 1 for group in mesh.groups(axis))


orders = ("tp-dp-pp", "tp-pp-dp", "dp-pp-tp")
for order in orders:
    there = Mesh(dp=2, tp=2, pp=2, order=tuple(order.split("-")))
    counts = {axis: crosses(there, axis, toy) for axis in ("dp", "tp", "pp")}
    assert [axis for axis, count in counts.items() if count] == [order[-2:]]
    print(f"{order}: groups that cross: {counts}")

# %% [markdown]
# The three orders run the same training: the same operations, the same bytes, the same loss. What differs is which
# bytes have to leave a node.


# %%
def crossing(run, cluster):
    """Logical bytes of a step that go from one node to another; collectives counted as rings."""
    pairs = bytes_between(run.recording, 0).items()
    return sum(sent for (a, b), sent in pairs if cluster.node_of(a) != cluster.node_of(b))


runs = {"tp-dp-pp": run} | {order: lab.run(dp=2, tp=2, pp=2, steps=1, order=order) for order in orders[1:]}
replays = {order: found.replay("toy-2x4") for order, found in runs.items()}
for order in orders:
    total, over = sum(bytes_between(runs[order].recording, 0).values()), crossing(runs[order], toy)
    took = replays[order].summary["step_seconds"]
    print(f"{order}: {over:9,} of {total:,} bytes cross ({over / total:4.0%}); on toy-2x4 {1e3 * took:.0f} ms a step")

# %% [markdown]
# Here is the costly order, coloured by node: every tensor group has one rank in each.

# %%
lab.picture(grid, replays["dp-pp-tp"], colour="node", how="Each colour is a node of toy-2x4.")

# %%
assert len({sum(bytes_between(found.recording, 0).values()) for found in runs.values()}) == 1
assert len({found.steps[0]["loss"] for found in runs.values()}) == 1
slowest, fastest = replays["dp-pp-tp"].summary["step_seconds"], replays["tp-dp-pp"].summary["step_seconds"]
assert crossing(runs["tp-dp-pp"], toy) < crossing(runs["tp-pp-dp"], toy) < crossing(runs["dp-pp-tp"], toy)
assert fastest < replays["tp-pp-dp"].summary["step_seconds"] < slowest
print(f"with the tensor axis across the nodes a step takes {slowest / fastest:.2f} times as long")
lab.compare(replays["tp-dp-pp"], replays["dp-pp-tp"])

# %% [markdown]
# Look at the boxes of the tensor all-reduces: they are the ones that grew. With the pipeline axis between the nodes
# the fewest bytes cross, and those are messages that can travel while others compute.
#
# ## At full size
#
# GPT-3 on 1,024 A100s, 8 in a node, tensor 8 × pipeline 8 × data 16. Once as `tp-dp-pp`: a tensor group is a node.
# Once as `dp-tp-pp`: data neighbours share the nodes, and the 8 ranks of a tensor group sit in 8 different ones.
# Simulated:

# %%
gpt3 = {"model": "gpt3-175b", "tp": 8, "pp": 8, "dp": 16}
good = lab.simulate(**gpt3, cluster="a100-dgx", order="tp-dp-pp")
bad = lab.simulate(**gpt3, cluster="a100-dgx", order="dp-tp-pp")

# %% jupyter={"source_hidden": true}
lab.predict(
    "05-placement",
    "The plan, the model and the bytes are the same; only the tensor groups are spread over nodes."
    " How many times as long does a step take?",
    number=("times", 1, 4, "The tensor all-reduces of every block now run between nodes, and nothing hides them."),
    truth=lambda bad: bad.summary["step_seconds"] / good.summary["step_seconds"],
    run=lambda: bad,
    then=lambda bad: lab.view(bad, "bubble"),
)

# %%
big = Mesh(dp=16, tp=8, pp=8, order=("tp", "dp", "pp"))
spread = Mesh(dp=16, tp=8, pp=8, order=("dp", "tp", "pp"))
a100 = load_cluster("a100-dgx")
assert crosses(big, "tp", a100) == 0 and crosses(spread, "tp", a100) == len(spread.groups("tp")) == 128
ratio = bad.summary["step_seconds"] / good.summary["step_seconds"]
assert 1.5 < ratio < 2
print(f"a100-dgx: {good.summary['step_seconds']:.1f} s, spread {bad.summary['step_seconds']:.1f} s: {ratio:.2f} times")

# %% [markdown]
# Tutorials say that keeping tensor parallelism inside the 8-GPU node *doubled* the speed. How much it is depends on
# the network that the bad placement falls back on. With half of that network, `a100-dgx-800g`:

# %%
slow = {
    order: lab.simulate(**gpt3, cluster="a100-dgx-800g", order=order).summary["step_seconds"]
    for order in ("tp-dp-pp", "dp-tp-pp")
}
slower = slow["dp-tp-pp"] / slow["tp-dp-pp"]
assert slower > 2 > ratio
print(f'a100-dgx-800g: {slower:.2f} times as long, so "doubled" is about right')

# %% [markdown]
# ## 64 GPUs, 12 layers
#
# A well-known example shares out 64 GPUs as tensor 4 × pipeline 3 × data "≈ 5". Twelve layers over three stages is
# four each, fine. But 64 ÷ (4 · 3) is no whole number, and there is no part of a replica. Ask the planner for just
# that.

# %%
found = lab.plan(model="example-12-layer", cluster="a100-dgx", gpus=64, tp=4, pp=3, schedule="1f1b", refine=1)
best = found.ranked[0].job.plan
assert 64 % (4 * 3) != 0 and best.dp == 64 // 12 == 5 and found.idle_gpus == 64 - 60 == 4
print(f"dp={best.dp} tp={best.tp} pp={best.pp}: {64 - found.idle_gpus} GPUs work, {found.idle_gpus} stand idle")
print(found.sentences[-1])

# %% [markdown]
# Which plans use all 64? The same rules that check a job list them: tp has to divide the 12 heads, pp must not exceed
# the 12 layers, dp has to divide the batch of 480, and all three have to multiply to 64. No plan has 3 stages: 3 does
# not divide 64.

# %%
from engine.planner.plans import Space, shapes
from engine.prediction.published_models import preset

legal = sorted((s.tp, s.pp, s.dp) for s in shapes(Space.of(preset("example-12-layer").job, {"schedule": "1f1b"}), 64))
by_hand = [(t, p, 64 // (t * p)) for t, p in product((1, 2, 4), (1, 2, 4, 8))]
assert legal == [plan for plan in by_hand if 480 % plan[2] == 0]  # the batch is 480 sequences
print("tensor × pipeline × data:", ", ".join("{} × {} × {}".format(*plan) for plan in legal))

# %%
speeds = {}
for fixed in ({"tp": 4, "pp": 3}, {"tp": 4, "pp": 2}, {"tp": 1, "pp": 1}):
    top = lab.plan(model="example-12-layer", gpus=64, schedule="1f1b", refine=1, **fixed).ranked[0]
    plan = top.job.plan
    speeds[plan.tp, plan.pp, plan.dp] = top.tokens_per_second / 1e6
    print(f"{plan.tp} × {plan.pp} × {plan.dp}: {speeds[plan.tp, plan.pp, plan.dp]:.1f} million tokens a second")
assert speeds[4, 3, 5] < speeds[4, 2, 8] < speeds[1, 1, 60] and 480 % 64 != 0 == 480 % 60

# %% [markdown]
# With tensor 4 kept, two stages and all 64 GPUs beat three stages and 60. But a model as small as this needs no
# splitting: as plain replicas it is faster still, and there too 4 GPUs stand idle, for 64 does not divide the batch
# of 480. Idle GPUs are easy to see; the cost of splitting is what to look at.

# %% [markdown]
# ## Where the embedding lives
#
# Many models use one matrix at both ends: token embedding and output matrix are *tied*. Under a pipeline the first
# stage has one end and the last stage the other, so each holds a copy, and once a step the two sum its gradient: one
# more axis of traffic, `tie`.

# %%
tied = {order: lab.run(dp=2, tp=2, pp=2, steps=1, tied=True, order=order) for order in ("tp-dp-pp", "tp-pp-dp")}
row = next(row for row in tied["tp-dp-pp"].communication_table if row["axis"] == "tie")
table = run.job.model.vocab * run.job.model.hidden // 2 * 4  # this rank's half of the words, float32
assert row["logical_bytes"] == 2 * (2 - 1) * table // 2
print(f"once a step each end sends {row['logical_bytes']:,} bytes: its slice of the gradient of the token matrix")

# %% [markdown]
# Does it leave the node? That is placement again. With the pipeline axis across nodes, both ends are in different
# nodes; with the data axis across, they are in the same.


# %%
def tie_crossing(run, cluster):
    ties = [op for op in run.ops if op["group"] == "tie" and op["kind"] != "wait"]
    return sum(op["logical_bytes"] for op in ties if len({cluster.node_of(rank) for rank in op["peers"]}) == 2)


for order, found in tied.items():
    print(f"{order}: {tie_crossing(found, toy):7,} of {crossing(found, toy):,} bytes that cross are of the tied matrix")
assert tie_crossing(tied["tp-pp-dp"], toy) == 0
assert tie_crossing(tied["tp-dp-pp"], toy) == 8 * row["logical_bytes"]  # 8 ranks, all of them at one end
assert crossing(tied["tp-dp-pp"], toy) == crossing(run, toy) + tie_crossing(tied["tp-dp-pp"], toy)

# %% [markdown]
# So the claim that embedding placement cuts traffic between nodes holds: by exactly these bytes, the share of the
# whole printed above. Untied, they are gone too; the price is a second matrix in memory. And with `tp-pp-dp` it is
# the gradients of everything else that cross.
#
# ## Try it
#
# Build a grid of your own, and slow down the links. Watch the coordinates, and which lanes wait.

# %%
lab.explore(knobs=("dp", "tp", "pp", "link_speed"), views=("grid", "timeline"), cluster="toy-2x4", dp=2, tp=2, pp=2)

# %% [markdown]
# ## Three questions
#
# **1. dp=4, tp=2, pp=2, order `tp-dp-pp`. Which ranks are in the data group of rank 5?**
# <details><summary>Answer</summary>Tensor coordinate 5 mod 2 = 1, pipeline coordinate 0: ranks 1, 3, 5 and
# 7.</details>
#
# **2. Nodes have 8 GPUs and a colleague wants tp=16. What does the placement of this notebook tell you?**
# <details><summary>Answer</summary>Every tensor group then crosses a node border, whatever the order, with an
# all-reduce for each half of every block and nothing to hide it behind. Take tp=8 and more pipeline stages or data
# ranks.</details>
#
# **3. Why do bytes that cross nodes differ between orders, and not the loss?**
# <details><summary>Answer</summary>The order only says which process plays which coordinate. Each coordinate computes
# the same; only the wires between them are other ones.</details>

# %%
assert Mesh(dp=4, tp=2, pp=2).group("dp", 5) == [1, 3, 5, 7]  # question 1
