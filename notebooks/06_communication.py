# %% [markdown]
# # 06 · Communication
#
# All parallelism comes down to a few ways in which ranks exchange tensors. Here they are taken apart, step by step,
# first in plain torch and then between real processes, until you can say what each costs and why.
#
# 20 minutes. Afterwards you can say
# - what all-reduce, reduce-scatter and all-gather do, and how one is made of the other two,
# - why a ring sends $2\frac{n-1}{n}$ of the bytes, however many ranks there are,
# - which part of the cost grows with the ranks and which does not,
# - when a ring is not the best algorithm, and which axis of a plan moves what.

# %%
from dataclasses import replace

import numpy as np
import torch

import lab
from engine.cluster.cluster import load_cluster
from engine.cluster.collectives import group_cost
from lab.views.figures.communication.ring import ring_figure
from lab.views.figures.style.curves import curves_figure

# %% [markdown]
# ## Three collectives
#
# A *collective* is an operation that all ranks of a group enter together. Four ranks, in one process for now: a list
# of four tensors. These three lines say what each collective must deliver, not how.


# %%
def all_reduce(tensors):  # everybody gets the sum
    return [sum(tensors)] * len(tensors)


def reduce_scatter(tensors):  # everybody gets one piece of the sum
    return list(sum(tensors).chunk(len(tensors)))


def all_gather(pieces):  # everybody gets all pieces
    return [torch.cat(pieces)] * len(pieces)


n = 4
tensors = [torch.arange(8) + 10 * rank for rank in range(n)]  # one a rank
for rank, tensor in enumerate(tensors):
    print(f"rank {rank} has {tensor.tolist()}, gets the piece {reduce_scatter(tensors)[rank].tolist()}")
assert all(map(torch.equal, all_gather(reduce_scatter(tensors)), all_reduce(tensors)))
print("an all-gather of the pieces gives the all-reduce:", all_reduce(tensors)[0].tolist())

# %% [markdown]
# ## A ring, round by round
#
# The simplest way to sum, everybody sends everything to everybody, has each rank send $n-1$ times its tensor. A
# *ring* does better. Cut the tensor into $n$ pieces; in every exchange each rank sends **one piece** to the next
# rank, all at once. In the first $n-1$ exchanges what arrives is added. In the other $n-1$ it is complete and takes
# the place of what was there.

# %%
pieces = [list(tensor.clone().chunk(n)) for tensor in tensors]  # pieces[rank][i]
summed = np.ones((n, n), dtype=int)  # how many ranks' numbers are in pieces[rank][i]
rounds, sent = [summed.copy()], 0
for k in range(2 * (n - 1)):
    parcels = [(rank, (rank - k) % n) for rank in range(n)]  # who sends which piece
    parcels = [((rank + 1) % n, i, pieces[rank][i].clone(), summed[rank, i]) for rank, i in parcels]
    for to, i, data, count in parcels:
        adding = k < n - 1
        pieces[to][i] = pieces[to][i] + data if adding else data
        summed[to, i] = summed[to, i] + count if adding else count
    sent += parcels[0][2].numel()  # by one rank
    rounds.append(summed.copy())
assert all(torch.equal(torch.cat(own), sum(tensors)) for own in pieces)

# %%
lab.picture(ring_figure, rounds, how="Each cell: the sum of how many of the 4 ranks is there.")

# %% [markdown]
# Halfway through, each rank holds one complete piece: that *was* a reduce-scatter. The second half is an all-gather.
# Each rank sent $2(n-1)$ pieces of $1/n$ of the tensor.

# %%
size = tensors[0].numel()
assert sent == 2 * (n - 1) * size // n
print(f"each rank sent {sent} numbers, {sent / size:g} × its tensor; everybody to everybody would be {n - 1} ×")

# %% [markdown]
# ## Real processes
#
# Four data-parallel ranks sum their gradients with an all-reduce, bucket by bucket. A run records each call and the
# size of its tensor; what a rank sends for it is booked by the rule of the ring above.


# %%
def gradients_sent(run):
    """Bytes that a rank sends on the data axis in a step ÷ bytes of its gradients."""
    row = next(row for row in run.communication_table if (row["axis"], row["op"]) == ("dp", "all_reduce"))
    return row["logical_bytes"] / run.summary["memory"]["per_rank"][0]["grads"]


# %% jupyter={"source_hidden": true}
lab.predict(
    "06-ring-bytes",
    "Four ranks all-reduce their gradients on a ring. How many times its gradients does each rank send in a step?",
    choices={
        "1": "Each rank does send its gradients away once, but then the sums have to come back.",
        "1.5": "2(n−1)/n with n = 4: three quarters on the way to the sums, three quarters to spread them.",
        "3": "That is everybody to everybody. On a ring each piece travels once around, summed on the way.",
        "4": "That would grow with the number of ranks. A ring never sends more than twice the gradients.",
    },
    truth=lambda run: f"{gradients_sent(run):g}",
    run=lambda: lab.run(dp=4, steps=1),
    then=lambda run: lab.view(run, "matrix", "communication"),
)

# %%
for dp in (2, 4, 8):
    times = gradients_sent(lab.run(dp=dp, steps=1, parity=False, microbatches=2))
    print(f"dp={dp}: each rank sends {times:g} × its gradients")
    assert times == 2 * (dp - 1) / dp  # so the buckets together hold each gradient once

# %% [markdown]
# Do the wires carry that much? A test of the lab, `tests/engine/test_wire_bytes.py`, asks the sockets of four processes
# what they sent for a tensor of 4 MiB: the rule holds to 1 %.
#
# ## What it costs: α and β
#
# Sending takes time in two ways. Every *hop*, a message from one rank to the next, costs a *latency* α however short
# it is. And every byte takes β seconds, one divided by the *bandwidth* of the link. So
#
# $$ \text{time} = \alpha \cdot \text{hops} + \beta \cdot \text{bytes} $$
#
# A ring makes $2(n-1)$ hops one after the other, and each rank sends $2\frac{n-1}{n}$ of the bytes. Take the links
# inside a node of `a100-dgx`, and pretend that as many GPUs as we like are joined by them:

# %%
a100 = load_cluster("a100-dgx")
one_tier = replace(a100, name="one-tier", nodes=(replace(a100.nodes[0], devices=1024),))
counts = (2, 8, 64, 512)
lines = {ranks: group_cost(one_tier, tuple(range(ranks)), ranks).lines["all_reduce"][0] for ranks in counts}
launch, hop, bandwidth = (getattr(a100.nodes[0].inside, name) for name in ("launch_s", "latency_s", "bandwidth"))
β = 1 / bandwidth
for ranks, line in lines.items():
    hops, moved = line.alpha - launch, line.beta * 1e9  # seconds; the bytes are those of 1 GB
    assert np.isclose(hops, 2 * (ranks - 1) * hop) and np.isclose(moved, 2 * (ranks - 1) / ranks * 1e9 * β)
    print(f"{ranks:3} ranks: hops {1e3 * hops:.3f} ms, bytes {1e3 * moved:.2f} ms: {moved / β / 1e9:.2f} × 1 GB · β")

# %% [markdown]
# Tutorials say that the cost of an all-reduce grows linearly with the number of GPUs. Half of that is right: the hops
# do, the bytes do not; from 2 to 512 ranks their part does not even double. Which half you feel depends on the size.

# %%
grows = {size: lines[512].seconds(size) / lines[8].seconds(size) for size in (10e3, 10e9)}
more = (512 - 1) / (8 - 1)
assert grows[10e3] > 30 and grows[10e9] < 1.2
print(f"8 → 512 ranks: {more:.0f} × the hops; 10 kB takes {grows[10e3]:.0f} × as long, 10 GB {grows[10e9]:.2f} ×")
kinds = {"10 kB": 10e3, "10 MB": 10e6, "1 GB": 1e9, "10 GB": 10e9}
curves = {name: [float(line.seconds(size)) for line in lines.values()] for name, size in kinds.items()}
title = "Small all-reduces grow with the ranks, large ones hardly"
lab.picture(curves_figure, counts, curves, title=title, across="ranks")

# %% [markdown]
# ## Two tiers: is a ring still the best?
#
# Real clusters have fast links inside nodes and slow ones between them. A *hierarchical* all-reduce respects that:
# reduce-scatter inside each node, all-reduce between nodes of one piece only, all-gather inside. With the three
# functions from above, 2 nodes of 2:

# %%
nodes = [tensors[:2], tensors[2:]]
inside = [reduce_scatter(node) for node in nodes]  # inside[node][i]: piece i of the node's sum
across = [all_reduce([node[i] for node in inside])[0] for i in range(2)]  # half of the bytes cross
whole = all_gather(across)  # inside each node
assert torch.equal(whole[0], sum(tensors))
print("only one of", len(across), "pieces per rank crossed; the result is the same:", whole[0].tolist())

# %% [markdown]
# A *tree* goes another way: sums climb from leaf to root and come back, so the number of hops that follow one another
# grows with the logarithm of the nodes. The described clusters know all three, and take the cheapest. 64 GPUs on 8
# nodes:

# %%
sizes = tuple(10.0**power for power in range(3, 11))
lines64 = {line.algorithm: line for line in group_cost(a100, tuple(range(64)), 64).lines["all_reduce"]}
curves64 = {name: [float(line.seconds(size)) for size in sizes] for name, line in lines64.items()}
title = "All-reduce over 64 GPUs of a100-dgx: for small tensors hops decide, for large ones bytes"
lab.picture(curves_figure, sizes, curves64, title=title, across="bytes", unit="B")

# %%
slower = {size: lines64["ring"].seconds(size) / lines64["tree"].seconds(size) for size in (1e4, 1e7, 1e10)}
assert slower[1e4] > 3 and lines64["ring"].seconds(1e10) == min(line.seconds(1e10) for line in lines64.values())
for size, times in slower.items():
    print(f"{size / 1e6:9,.2f} MB: the flat ring takes {times:.2f} times as long as the tree")
toy = group_cost(load_cluster("toy-2x4"), tuple(range(8)), 8)
taken = {size: toy.explain("all_reduce", size) for size in (1_000, 10_000, 1_000_000)}
assert [choice.algorithm for choice in taken.values()] == ["tree", "ring", "hierarchical"]
for size, choice in taken.items():
    print(f"toy-2x4, {size:9,} bytes: {choice.why}")

# %% [markdown]
# So "a ring may not be best across nodes" holds, under conditions. Where many nodes and small tensors meet, its hops
# cost several times the tree's. For 10 GB on `a100-dgx`, where every GPU has an adapter of its own, the ring is the
# cheapest of the three. On `toy-2x4`, with slow links between only two nodes, each of them has its sizes.
#
# ## Which axis moves what?
#
# Back to a whole plan: one real step of 2 data × 2 tensor × 2 pipeline, as rank 0 saw it.

# %%
run = lab.run(dp=2, tp=2, pp=2, steps=1)


def by_axis(run, column):
    rows = run.communication_table
    return {axis: sum(row[column] for row in rows if row["axis"] == axis) for axis in ("tp", "pp", "dp")}


count, moved = by_axis(run, "count"), by_axis(run, "logical_bytes")
for axis, what in (
    ("tp", "activations, inside every block"),
    ("pp", "activations, between stages"),
    ("dp", "gradients"),
):
    print(f"{axis}: {count[axis]:2} operations, {moved[axis]:9,} bytes: {what}")
assert count["tp"] > count["pp"] > count["dp"]
lab.view(run, "communication", "matrix")

# %% [markdown]
# How often: tensor more than pipeline more than data, as tutorials say. How much is another question, for the axes
# scale with different things. The same plan with other shapes, simulated; the first line is equal to the run above.

# %%
shapes = {"as above": {}, "seq × 2": {"seq": 128}, "batch × 2": {"batch": 32}, "layers × 2": {"layers": 8}}
shapes |= {"hidden × 2": {"hidden": 128}, "hidden × 4": {"hidden": 256}}
table = {name: by_axis(lab.simulate(dp=2, tp=2, pp=2, **shape), "logical_bytes") for name, shape in shapes.items()}
assert table["as above"] == moved
print(f"{'':12} {'tensor':>12} {'pipeline':>12} {'data':>12}")
for name, row in table.items():
    print(f"{name:12}", " ".join(f"{row[axis]:12,}" for axis in ("tp", "pp", "dp")))

# %%
messages = {name: row["pp"] / moved["pp"] for name, row in table.items()}
assert messages == {"as above": 1, "seq × 2": 2, "batch × 2": 2, "layers × 2": 1, "hidden × 2": 2, "hidden × 4": 4}
positions = 64 * run.job.model.hidden * 4  # 64 more rows in float32; of 2 ranks each sends them once
assert table["seq × 2"]["dp"] == moved["dp"] + positions
assert table["batch × 2"]["tp"] == 2 * moved["tp"] and table["batch × 2"]["dp"] == moved["dp"]
assert moved["dp"] < moved["pp"] and 3.5 < table["hidden × 2"]["dp"] / moved["dp"] < 4
assert all(table[shape]["dp"] > table[shape]["pp"] for shape in ("layers × 2", "hidden × 2"))

# %% [markdown]
# - **Tensor and pipeline** move activations: twice the tokens, twice the bytes. No parameter crosses, whatever
#   "parameter-sized" in some tutorials suggests. Tensor traffic also grows with the layers, pipeline messages do not.
# - **Data** moves gradients, once a step. A bigger batch changes nothing, a longer sequence adds only a longer table
#   of positions, but twice the width makes nearly four times as many weights.
# - So "data parallelism moves least" is no law: with twice the layers or twice the width, the pipeline moves less.
#
# ## Try it
#
# The links of the cluster are yours to turn. When do the all-reduces of the data axis stop hiding under the backward?

# %%
lab.explore(knobs=("link_speed", "dp", "tp"), views=("timeline", "communication"), cluster="toy-2x4", dp=4, steps=1)

# %% [markdown]
# ## Your turn
#
# Above, one loop moved the pieces of all ranks. Real ranks know only their own. Write the ring as rank `rank` sees
# it. Here the elements that each rank sends are counted, not computed.

# %%
lab.task("ring_all_reduce")


# %%
def ring_all_reduce(tensor, rank, world_size, exchange):
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    return tensor + exchange(tensor, after, before)  # yours: this is the sum of two ranks only


lab.check("ring_all_reduce", ring_all_reduce)

# %% [markdown]
# Stuck? `lab.hint("ring_all_reduce")` helps, and `lab.solution("ring_all_reduce")` tells.
#
# ## Three questions
#
# **1. A reduce-scatter over 8 ranks of a 1 GB tensor: how many bytes does a rank send?**
# <details><summary>Answer</summary>7/8 GB: half of what the all-reduce sends.</details>
#
# **2. You double the number of data-parallel ranks, all else per rank the same. What happens to the bytes each rank
# sends, and to the hops?**
# <details><summary>Answer</summary>The bytes stay below twice the gradients and hardly change. The hops of a ring
# double, those of a tree grow by two.</details>
#
# **3. Why are gradients summed in buckets of many megabytes, not tensor by tensor?**
# <details><summary>Answer</summary>Each operation pays launch and hops once, however small it is. A bucket pays them
# for many tensors together. Too large a bucket, and the sum starts late: notebook 01.</details>
