# %% [markdown]
# # 03 · Tensor parallel
#
# Data parallelism copies the model; *tensor parallelism* cuts it: every matrix of every layer is shared out over a
# few ranks, which work on the same tokens at the same time. That is how a layer too big for one device runs at all.
#
# 20 minutes. Afterwards you can say
# - why a column split followed by a row split needs **one** sum, not two,
# - how many collectives a transformer block costs, and of how many bytes,
# - what sequence parallelism changes, and what it leaves alone,
# - why the tensor group stays inside a node.

# %%
import torch
from torch.nn.functional import cross_entropy, gelu

import lab

# %% [markdown]
# ## Two ranks in one process
#
# Before any process starts, twelve lines of torch. An MLP is two matrix products with a GELU between them:
# $y = \mathrm{gelu}(xA)\,B$. Here are 3 tokens of 4 features, and what one process computes.

# %%
torch.manual_seed(0)
x = torch.randn(3, 4, dtype=torch.float64)
A = torch.randn(4, 8, dtype=torch.float64)
B = torch.randn(8, 4, dtype=torch.float64)

hidden = gelu(x @ A)
y = hidden @ B
print("x", *x.shape, "· A", *A.shape, "→ hidden", *hidden.shape, "· B", *B.shape, "→ y", *y.shape)

# %% [markdown]
# **Cut A into columns.** Each rank holds half of the columns and all of `x`. It computes half of the hidden features,
# whole and final: nobody has to be asked. GELU looks at one number at a time, so it can be applied to the halves.

# %%
A0, A1 = A.chunk(2, dim=1)
hidden0 = gelu(x @ A0)  # on rank 0
hidden1 = gelu(x @ A1)  # on rank 1
assert torch.allclose(torch.cat([hidden0, hidden1], dim=1), hidden)
print(f"each rank has {tuple(hidden0.shape)} of {tuple(hidden.shape)}: side by side the whole, and nothing was sent")

# %% [markdown]
# **Cut B into rows.** Row $i$ of $B$ is multiplied only by hidden feature $i$. So the rank that has hidden features 0
# to 3 needs rows 0 to 3, exactly those, and the halves fit without being exchanged. What comes out has the shape of
# `y`, but it is a *partial sum*: the rest is on the other rank. One addition over the ranks, an *all-reduce*,
# completes it.

# %%
B0, B1 = B.chunk(2, dim=0)
partial0 = hidden0 @ B0  # on rank 0
partial1 = hidden1 @ B1  # on rank 1
assert not torch.allclose(partial0, y)
assert torch.allclose(partial0 + partial1, y)  # the all-reduce
print("partial0 + partial1 is y: one sum for two matrix products")

# %% [markdown]
# **Why not rows first?** Then the partial sums would stand before the GELU, and GELU of a sum is not the sum of the
# GELUs: the ranks would have to all-reduce in the middle. Column first, row second is the order with a single sum
# (Shoeybi et al. 2019, *Megatron-LM*, section 3).

# %%
rows0, rows1 = x[:, :2] @ A[:2], x[:, 2:] @ A[2:]  # A cut into rows, x into columns
assert torch.allclose(rows0 + rows1, x @ A)
off = (gelu(rows0) + gelu(rows1) - hidden).abs().max()
assert off > 0.1
print(f"GELU applied before the sum is off by up to {off:.2f}")

# %% [markdown]
# **Backward** is the mirror image. `y` was a sum, so both ranks receive the same gradient: nothing to send. But both
# used all of `x`, each through its own half of the matrices, so the gradient of `x` is a sum of two parts: one
# all-reduce. The gradients of the weights stay at home.

# %%
dy = torch.randn_like(y)


def gradients(a, b):
    """Of x and of a, on a rank that holds a of A and b of B."""
    my_x, my_a = x.clone().requires_grad_(), a.clone().requires_grad_()
    return torch.autograd.grad(gelu(my_x @ my_a) @ b, (my_x, my_a), dy)


(dx, dA), (dx0, dA0), (dx1, dA1) = gradients(A, B), gradients(A0, B0), gradients(A1, B1)
assert torch.allclose(dx0 + dx1, dx)  # the all-reduce of the backward
assert torch.allclose(torch.cat([dA0, dA1], dim=1), dA)  # nothing sent
print("dx0 + dx1 is dx: one sum again; dA0 and dA1 side by side are dA")

# %% [markdown]
# > A trap of names: the paper writes $xA$, where a *column* is one output feature. `nn.Linear` stores the transposed
# > matrix, `[out, in]`. So *column parallel* cuts **dim 0** of `linear.weight`, and *row parallel* cuts dim 1.
#
# ## Now with real processes
#
# The same two cuts, in a real GPT on two ranks. A block has two halves, attention and MLP; each is a column-parallel
# product followed by a row-parallel one.

# %%
run = lab.run(tp=2, steps=1)
run


# %%
def inside(run, unit, kind):
    """The collectives inside one action of rank 0, in order; first micro-batch of the first step."""
    rows = [op for op in run.ops if op["rank"] == 0 and op["step"] == 0]
    action = next(op for op in rows if (op["unit"], op["kind"], op["microbatch"]) == (unit, kind, 0))
    return [op for op in rows if op["parent"] == action["seq"]]


# %% jupyter={"source_hidden": true}
lab.predict(
    "03-all-reduces",
    "How many all-reduces does one block need for one micro-batch, forward and backward together, with tp=2?",
    choices={
        "2": "That is the forward alone: one for attention, one for the MLP. The backward mirrors each of them.",
        "4": "Two halves, each with one sum at its end (forward) and one at its beginning (backward).",
        "8": "That would be one for each matrix product. A column-parallel product needs none after it.",
    },
    truth=lambda run: str(len(inside(run, "block1", "forward")) + len(inside(run, "block1", "backward"))),
    run=lambda: run,
    then=lambda run: lab.view(run, "timeline"),
)

# %%
for unit in ("embedding", "block0", "block1", "block2", "block3", "head"):
    counts = [f"{len(inside(run, unit, kind))} {kind}" for kind in ("forward", "backward")]
    print(f"{unit:10}", ", ".join(counts))
assert len(inside(run, "block1", "forward")) == len(inside(run, "block1", "backward")) == 2

# %% [markdown]
# What is summed is an activation, $s \times b \times h$ numbers: sequence × sequences in a micro-batch × hidden size.
# No parameter ever crosses. That size is what a run records; the bytes that each rank sends for it are
# $2\frac{t-1}{t}$ of it, the rule of every ring all-reduce (notebook 06).

# %%
job, t = run.job, 2
activation = job.model.seq * job.microbatch_size * job.model.hidden * 4  # float32
one = inside(run, "block1", "forward")[0]
assert one["logical_bytes"] == 2 * (t - 1) * activation // t  # so the tensor has the size of one activation
blocks = job.model.layers * job.plan.microbatches * 4 * one["logical_bytes"]
print(f"one all-reduce {one['logical_bytes']:,} bytes × 4 in a block × {job.model.layers} blocks", end=" ")
print(f"× {job.plan.microbatches} micro-batches = {blocks:,} bytes a step")

# %% [markdown]
# ## Who holds what
#
# Attention has a natural cut: its heads. The query, key and value matrices are column-parallel **by whole heads**, so
# that each rank computes softmax for its own heads alone, and the output matrix is row-parallel.
#
# The figure draws the weights as torch stores them, `[out, in]`, so a column of the paper lies there as a row. In
# `qkv` three matrices are stacked, query, key and value, and each is cut. Choose a rank to see its slices.

# %%
lab.view(run, "shards")

# %%
from engine.model.params import unit_params

for p in unit_params(job.model, t, "block0"):
    cut = f"cut along dim {p.placements['tp']}" if p.placements else "whole on every rank"
    mine = p.local_shape({"tp": t})
    print(f"{p.name:19} {p.shape!s:18} each rank {mine!s:18} {cut}")

# %% [markdown]
# Half a head is no head, so the tensor degree must divide the number of heads. Ask for three:

# %%
try:
    lab.run(tp=3)
except ValueError as refusal:
    print(refusal)
    assert "tp=3 does not divide heads=4" in str(refusal)
else:
    raise AssertionError("tp=3 should have been refused")

# %% [markdown]
# ## The vocabulary
#
# The embedding and the output matrix have one row per word, and they are cut along the words. A rank that does not
# hold a token's row looks up zeros, and the sum over the ranks puts every row in its place: one all-reduce in the
# embedding.
#
# For the loss it would be wasteful to collect the logits, tokens × vocabulary numbers. Softmax needs only three
# numbers per token from everybody: the largest logit, the sum of exponentials, and the logit of the right word.

# %%
logits, target = torch.randn(8), 5
half0, half1 = logits.chunk(2)  # words 0-3 on rank 0, words 4-7 on rank 1
top = torch.maximum(half0.max(), half1.max())  # all-reduce, maximum
total = (half0 - top).exp().sum() + (half1 - top).exp().sum()  # all-reduce, sum
hit = 0.0 + (half1[target - 4] - top)  # all-reduce, sum: rank 0 does not hold the word and gives 0
assert torch.allclose(total.log() - hit, cross_entropy(logits, torch.tensor(target)))

# %%
tokens = job.model.seq * job.microbatch_size
three = inside(run, "head", "forward")
sent = sum(op["logical_bytes"] for op in three)
gathered = (t - 1) * tokens * job.model.vocab * 4 // t
assert len(three) == 3 and sent == 3 * 2 * (t - 1) * tokens * 4 // t
print(f"loss of one micro-batch: {sent:,} bytes in 3 all-reduces; collecting the logits would take {gathered:,}")

ends = job.plan.microbatches * (2 * one["logical_bytes"] + sent)  # embedding forward, head backward, loss
assert run.communication_table[0]["logical_bytes"] == blocks + ends
print(f"blocks {blocks:,} + both ends {ends:,} bytes: all that a rank sent on the tensor axis in the step")

# %% [markdown]
# ## What is not cut: sequence parallelism
#
# Norms, residuals and what they keep for the backward stay whole on every rank. *Sequence parallelism* (Korthikanti
# et al. 2022, section 4.2.2) cuts them too, along the sequence: between the column–row pairs each rank holds $s/t$ of
# the tokens. A *reduce-scatter* then takes the place of the all-reduce at the end of a pair, and an *all-gather*
# makes the input of the next pair whole.

# %%
sp = lab.run(tp=2, sequence_parallel=True, steps=1)
for kind in ("forward", "backward"):
    for name, found in (("tensor", run), ("+ sequence", sp)):
        ops = inside(found, "block1", kind)
        words = ", ".join(op["op"].replace("_", "-") for op in ops)
        print(f"{kind:8} {name:10} {sum(op['logical_bytes'] for op in ops):7,} bytes: {words}")

# %% [markdown]
# Forward, not a byte more: an all-reduce *is* a reduce-scatter followed by an all-gather. The backward gathers each
# pair's input once more than that, because only the scattered input was kept. Two more gathers a block: the price for
# keeping $1/t$.


# %%
def sent_inside(run, kind):
    return sum(op["logical_bytes"] for op in inside(run, "block1", kind))


assert sent_inside(sp, "forward") == sent_inside(run, "forward")
again = 2 * (t - 1) * activation // t  # two all-gathers, (t−1)/t of an activation each
assert sent_inside(sp, "backward") == sent_inside(run, "backward") + again
print(f"forward: the same {sent_inside(sp, 'forward'):,} bytes; backward: {again:,} more for the two repeated gathers")

# %% [markdown]
# And what it is for, measured: the peak of activations. With two norms in each block and one in the head, each
# keeping its input, its output and two numbers per token, half of all that goes away.

# %%
peaks = [found.summary["memory"]["per_rank"][0]["activations_peak"] for found in (run, sp)]
norms = 2 * job.model.layers + 1
kept_by_norm = 2 * activation + 2 * tokens * 4
assert peaks[0] - peaks[1] == norms * kept_by_norm * (t - 1) // t
print(f"activations at peak: {peaks[0]:,} bytes with tp=2, {peaks[1]:,} with sequence parallelism")
lab.compare(run, sp)

# %% [markdown]
# ## Logical and wire
#
# *Logical bytes* are what a ring moves for an operation. *Wire bytes* are what it moves for the one that the backend
# carries out. gloo, the backend for processors, has no reduce-scatter of its own: a whole all-reduce is done, and a
# slice kept. NCCL, on GPUs, has one. So the ledger keeps two columns, both computed from the recorded sizes. For gloo
# a test, `tests/engine/test_wire_bytes.py`, counts what the sockets send: the wire column, to 1 %.


# %%
def scattered(run):
    return next(row for row in run.communication_table if (row["axis"], row["op"]) == ("tp", "reduce_scatter"))


backend = sp.summary["backend"]
for name, found in ((f"run here, {backend}", sp), ("replayed on toy-2x4, NCCL", sp.replay("toy-2x4"))):
    row = scattered(found)
    print(f"{name:26} logical {row['logical_bytes']:,}, on the wire {row['wire_bytes']:,}")
twice = 2 if backend == "gloo" else 1
assert scattered(sp)["wire_bytes"] == twice * scattered(sp)["logical_bytes"]
assert scattered(sp.replay("toy-2x4"))["wire_bytes"] == scattered(sp)["logical_bytes"]
lab.view(sp, "communication")

# %% [markdown]
# ## What it costs to leave the node
#
# Every one of those all-reduces stands in the way: the next product needs its result, so nothing hides it. Cluster
# `toy-2x4` has 2 nodes of 4 devices, and between nodes its links are slower. A model with 8 heads, simulated there:

# %%
sims = {tp: lab.simulate(tp=tp, heads=8, cluster="toy-2x4") for tp in (1, 2, 4, 8)}
seconds = {tp: sim.summary["step_seconds"] for tp, sim in sims.items()}
kept = {tp: seconds[1] / took / tp for tp, took in seconds.items()}
for tp, share in kept.items():
    where = "in two nodes" if tp > 4 else "in one node"
    print(f"tp={tp} {where:12}: {1e3 * seconds[tp]:5.0f} ms a step, {share:.0%} of {tp} times the speed of one")

# %% [markdown]
# Some of that last drop comes from the finer cut: less to compute between two sums. The rest comes from the border.
# To tell them apart, put the same recording on a cluster whose nodes are joined by the links inside a node:

# %%
from dataclasses import replace

from engine.cluster.cluster import load_cluster

toy = load_cluster("toy-2x4")
no_border = sims[8].replay(replace(toy, name="toy-1x8", across=toy.nodes[0].inside)).summary["step_seconds"]
within = seconds[1] / no_border / 8
assert kept[4] > within > kept[8]
print(f"tp=8 without the border: {within:.0%}; with it: {kept[8]:.0%}")

# %% [markdown]
# At full size it is the same: one all-reduce of GPT-3's activation ($s = 2048$, $h = 12288$, 2 bytes each) on
# `a100-dgx`, described after nodes of 8 GPUs.

# %%
from engine.cluster.collectives import group_cost

a100, size, last = load_cluster("a100-dgx"), 2048 * 12288 * 2, 0.0
for ranks in (2, 4, 8, 16, 32):
    found = group_cost(a100, tuple(range(ranks)), ranks).explain("all_reduce", size)
    where = f"{-(-ranks // 8)} node" + "s" * (ranks > 8)
    print(f"{ranks:2} GPUs on {where:7}: {1e6 * found.seconds:4.0f} µs by {found.algorithm}")
    assert found.seconds > last
    last = found.seconds

# %% [markdown]
# Doubling the group halves the computing between two sums, and the sums only get longer. Notebook 05 puts a whole
# plan on the wrong side of that border and measures it.
#
# ## Try it
#
# Raise `tp` and watch the boxes inside the forwards; switch sequence parallelism on and watch the memory; slow the
# links down.

# %%
lab.explore(
    knobs=("tp", "sequence_parallel", "link_speed"),
    views=("timeline", "memory"),
    cluster="toy-2x4",
    tp=2,
    heads=8,
    steps=1,
)

# %% [markdown]
# ## Your turn
#
# Write the column-parallel linear yourself.

# %%
lab.task("column_parallel_linear")


# %%
def column_parallel_linear(x, weight, bias, rank, world_size):
    return x @ weight.T + bias  # yours: now every rank computes all of it


lab.check("column_parallel_linear", column_parallel_linear)

# %% [markdown]
# Stuck? `lab.hint("column_parallel_linear")` helps, and `lab.solution("column_parallel_linear")` tells.
#
# ## Three questions
#
# **1. With tp=4 instead of 2, how many all-reduces does a block have, and how many bytes does a rank send in each?**
# <details><summary>Answer</summary>Still four: two forward, two backward. Each rank sends 2·3/4 = 1.5 activations
# instead of 2·1/2 = 1. The count does not depend on the degree, and the bytes never reach 2 activations.</details>
#
# **2. Why is the bias of a row-parallel linear added after the sum, and by whom?**
# <details><summary>Answer</summary>Added before, it would be counted once by every rank. Every rank adds the same
# whole bias to the sum, which they all have.</details>
#
# **3. Sequence parallelism sends the same bytes forward. Where does its saving come from?**
# <details><summary>Answer</summary>From what is kept for the backward: norms keep their input and output, and each
# rank keeps only its 1/t of the tokens. The price is two more all-gathers a block in the backward.</details>
