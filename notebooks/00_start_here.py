# %% [markdown]
# # 00 · Start here
#
# You have trained a model with PyTorch on one process. This lab shows what happens when several processes train one
# model together. Nothing here is an animation: a picture shows what processes did on your machine or, where it says
# *predicted* or *replayed*, what the same program does on hardware that is described to the lab.
#
# **15 minutes.** Afterwards you can say what a rank is, read a timeline, tell why the result of a run can be trusted,
# and find any run again.
#
# Go through the cells one by one: click on the first, then press **Shift + Enter** to run it and move on. You need no
# GPU and no download.

# %% [markdown]
# ## One process
#
# `lab.run()` trains a small GPT for a few steps and gives you a *run*: everything that happened. The very first run
# starts slowly, because PyTorch is being loaded.

# %%
import lab

one = lab.run(steps=2)
one

# %% [markdown]
# What was trained? Read it off the run:

# %%
job, holds = one.job, one.summary["memory"]["per_rank"][0]
print(f"model:  {job.model.layers} transformer blocks between an embedding and an output head,")
print(f"        {holds['params'] // 4:,} parameters of 4 bytes each")
print(f"batch:  {job.training.batch} sequences of {job.model.seq} bytes of English text for each step")
print(f"        in {job.plan.microbatches} micro-batches of {job.microbatch_size} sequences")
assert job.plan.microbatches * job.microbatch_size == job.training.batch

# %% [markdown]
# You know the loop: forward, backward, `optimizer.step()`. One round of it is a *step*. Here the batch of a step is
# cut into *micro-batches*. The model runs forward and backward on one after the other, the gradients add up, and only
# then does the optimizer update the weights. (PyTorch users call this gradient accumulation.)
#
# Now look at the second of the two steps. Steps are counted from 0 too, so the heading calls it step 1:

# %%
lab.view(one, "timeline")

# %% [markdown]
# This is a *timeline*. Time runs from left to right. Find these three things:
#
# - **The lane.** There is one process, so there is one thick lane. It shows what that process computed, and when. The
#   legend tells the colours.
# - **The numbers.** They name the micro-batch, counted from 0. First comes the forward of micro-batch 0, then its
#   backward, which takes about twice as long on a quiet machine, then micro-batch 1, and so on.
#   Thin lines divide the layers.
# - **The end.** The optimizer step comes last, once, after all micro-batches.
#
# Point at a box to read what it is. Hold Ctrl (on a Mac ⌘) and turn the mouse wheel to zoom, drag to move. The button
# “? Keys” says how to do the same with the keyboard. (The *bubble* in the heading is explained further down.)

# %% [markdown]
# ## Two ranks
#
# Now let two processes share the work. `pp=2` asks for a *pipeline* of two: the first process holds the first half of
# the model, the second the other half.

# %%
two = lab.run(pp=2, steps=2)
two

# %% [markdown]
# Each of the two processes is a *rank*. The word also means its number, counted from 0: rank 0 and rank 1. On a
# cluster a rank usually has a GPU of its own; here it has (a share of) a processor core.
#
# Every rank runs the same Python program, but has **its own memory**. Rank 1 cannot look into the tensors of rank 0.
# If it needs something, it has to be *sent*. Which layers did each rank run forward?

# %%
layers = {
    rank: list(dict.fromkeys(op["unit"] for op in two.ops if op["rank"] == rank and op["kind"] == "forward"))
    for rank in range(two.job.world_size)
}
for rank, names in layers.items():
    print(f"rank {rank}: {', '.join(names)}")
assert layers == {0: ["embedding", "block0", "block1"], 1: ["block2", "block3", "head"]}

# %% [markdown]
# So rank 1 can begin only when rank 0 has sent it the output of `block1`. Now there are two thick lanes, one for each
# rank:

# %%
lab.view(two, "timeline")

# %% [markdown]
# The hatched parts are *idle*: the rank stood still. Point at one, and it says what the rank was waiting for.
#
# ## Measured, and replayed
#
# What you saw was *measured*: clock times on this machine. They are honest, but rough. If your machine has fewer free
# cores than the run has ranks, the ranks take turns, and every other program gets in between. Run the cells again and
# the boxes have other lengths.
#
# A *replay* takes the very operations that were recorded, and works out how long each would take on a described
# cluster: so fast a device, so fast a network. It gives the same picture on every machine. `toy-2x4` describes a small
# cluster of 2 nodes with 4 slow devices each:

# %%
replayed = two.replay("toy-2x4")
lab.view(replayed, "timeline")

# %% [markdown]
# The boxes are those that ran, in the order in which they ran. Only the times are those of the described cluster.
# Follow micro-batch 0 with your finger:
#
# 1. its forward on rank 0, while rank 1 is idle, since it has nothing to work on yet;
# 2. a message to rank 1: a mark in the thin lane below rank 1, because messages are drawn where they arrive;
# 3. its forward and backward on rank 1;
# 4. a message back, and its backward on rank 0.
#
# Click on a box, and arrows show the messages that belong to it. The heading says which part of both thick lanes (the
# *compute streams* of the ranks) is idle. That part has a name, the *bubble*; notebook 04 is about it, and about the
# formula beside it. Which messages were sent?

# %%
step = [op for op in two.ops if op["step"] == 1]
sent = [op for op in step if op["kind"] in ("send_act", "send_grad")]
for op in sent:
    what = "activations" if op["kind"] == "send_act" else "gradients"
    other = next(rank for rank in op["peers"] if rank != op["rank"])
    print(f"rank {op['rank']} → rank {other}: {what} of micro-batch {op['microbatch']}, {op['logical_bytes']:,} bytes")
size = job.microbatch_size * job.model.seq * job.model.hidden * 4
assert len(sent) == 8 and {op["logical_bytes"] for op in sent} == {size} and job.microbatch_size == 4

# %% [markdown]
# Eight messages: for each of the four micro-batches one of *activations* (the output of `block1`, on its way to
# rank 1) and one of *gradients* (of the loss, with respect to that output, on its way back). Each holds 4 sequences ×
# 64 tokens × 64 numbers of 4 bytes.

# %% [markdown]
# ## Can the result be trusted?
#
# Before you read on: answer this one. The run starts when you have chosen, and then shows itself. (The code of a
# question is folded away, because it knows the answer. Run the cell like any other.)

# %% jupyter={"source_hidden": true}
SAME, LOWER, HIGHER = "the same, up to rounding", "lower", "higher"


def compared(run):
    """How the run's last loss compares with that of the one process above."""
    difference = run.steps[-1]["loss"] / one.steps[-1]["loss"] - 1
    return SAME if abs(difference) < 1e-5 else LOWER if difference < 0 else HIGHER


lab.predict(
    "00-same-loss",
    "Eight ranks train the same model on the same batch for two steps. How is their loss, beside that of one process?",
    choices={
        SAME: "The batch decides what is learned, and it is the same. More ranks do the same sum, in parts.",
        LOWER: "Eight ranks could be faster, but they see no more text: the batch is shared out among them.",
        HIGHER: "Nothing may get lost by splitting. If something does, that is a bug, and the check below finds it.",
    },
    truth=compared,
    run=lambda: lab.run(dp=2, tp=2, pp=2, steps=2),
)

# %% [markdown]
# Splitting a model over processes is easy to get *almost* right: the loss falls, and yet the gradients are wrong. So
# every run here is compared with *one process*: the same model with the same first weights sees the same text, without
# any splitting. That is what the badge "equal to one process" means. For our two ranks:

# %%
from lab.wording import GRAD_NORM_LIMIT, LOSS_LIMIT, PARAM_LIMIT

for row in two.recording.metrics.to_pylist():
    print(f"step {row['step']}: loss {row['loss']:.7f} on two ranks, {row['reference_loss']:.7f} on one process")
    assert abs(row["loss"] - row["reference_loss"]) <= LOSS_LIMIT * row["reference_loss"]
found = two.summary["parity"]
print(f"largest difference of any weight after the last step: {found['param_max_abs_diff']:.1e}")
print(f"largest relative difference of the gradient's norm:   {found['grad_norm_max_rel_diff']:.1e}")
print(f"allowed, relative: {LOSS_LIMIT:.0e} loss, {GRAD_NORM_LIMIT:.0e} gradient norm, {PARAM_LIMIT:.0e} weights")
assert found["passed"]

# %% [markdown]
# Why is the difference not exactly zero? Computers round after each addition, and two ranks add the same numbers up in
# another order. That moves the last digits of a 32-bit float, no more.
#
# A check is worth something only if it can fail. Suppose a bug made every update of the weights 1 % too large. After a
# single update, the loss is off by far more than the limit:

# %%
wrong = lab.run(pp=2, steps=2, lr=1.01 * two.job.training.lr)
right = two.recording.metrics.to_pylist()[1]["reference_loss"]
difference = abs(wrong.steps[1]["loss"] - right) / right
print(f"relative difference of the loss after one update: {difference:.1e}, {difference / LOSS_LIMIT:.0f} × the limit")
assert difference > 5 * LOSS_LIMIT

# %% [markdown]
# ## Eight ranks
#
# There are three ways to share the work, and they can be combined:
#
# - *data parallel* (`dp`): each rank has the whole model, and its own part of the batch;
# - *tensor parallel* (`tp`): each matrix is cut up, and each rank has a piece of it;
# - *pipeline parallel* (`pp`): each rank has some of the layers.
#
# With two of each, 2 × 2 × 2 = 8 ranks work together. Each has a place on a grid with three axes.

# %%
eight = lab.run(dp=2, tp=2, pp=2, steps=2)
assert eight.job.world_size == 8 and eight.summary["parity"]["passed"] and compared(eight) == SAME
lab.view(eight.replay("toy-2x4"))

# %% [markdown]
# This is a replay again. New are *collectives*, in which several ranks exchange data at once: those of the tensor axis
# lie inside the boxes, those of the data axis in a thin lane of their own.
#
# The two pictures are linked. Choose a rank, by a click on its lane or its ball or in the list at the top, and it is
# marked in both. Notebooks 01, 03 and 04 take the three ways one at a time, and 05 puts them together.

# %% [markdown]
# ## Where runs are kept
#
# Every run has a folder of its own, and stays there until you delete it:

# %%
print(two.folder)
for file in sorted(two.folder.iterdir()):
    print(f"  {file.name}")
again = lab.load(two.id)
assert again.steps == two.steps

# %% [markdown]
# `job.toml` says what was asked for, `program.txt` what each rank was told to do, `ops.parquet` what it did and when,
# `memory.parquet` what it held, and `summary.json` has the numbers you have seen. `lab.load("latest")` gives the
# newest run, and `lab.runs()` all of them:

# %%
newest = lab.runs()[:4]
assert eight.id in {run.id for run in newest}
for run in newest:
    print(f"{run.id}  {run.status}, loss {run.steps[-1]['loss']:.4f} after {len(run.steps)} steps")

# %% [markdown]
# ## Sliders
#
# You need not write code for each idea. Move a slider (with the mouse, or with Tab and the arrow keys), and this
# happens:
#
# 1. At once you see a **prediction**: the same program, worked out without processes.
# 2. Meanwhile real processes start, and train. You can cancel them.
# 3. When they are done, what was **measured** takes the place of the prediction, with the badge of the check.
#
# The switch says which times you see: those measured on this machine, or those of the replay on `toy-2x4`.

# %%
lab.explore(knobs=("dp", "tp", "pp", "microbatches"), views=("timeline", "grid"), pp=2)

# %% [markdown]
# Set `pp` to 4: where does the idle time grow? Then move the micro-batches. (Notebook 04 tells why.)
#
# Not every wish makes sense. Four attention heads cannot be shared by three ranks. A slider stops only where the dots
# below it are filled, and says why it passes over the others. If you ask in code, you get a sentence that says which
# setting, which rule, and what to use:

# %%
from engine.job.errors import JobRefused

try:
    lab.run(tp=3)
except JobRefused as refused:
    print(refused)
    assert str(refused) == "tp=3 does not divide heads=4: use 1, 2 or 4."

# %% [markdown]
# ## Three questions
#
# <details><summary>1. Rank 1 needs a tensor that rank 0 has computed. What has to happen?</summary>
#
# Rank 0 has to send it, and rank 1 has to receive it. Ranks are processes, each with its own memory: nothing is
# shared.
# </details>
#
# <details><summary>2. On a timeline, how do you tell that a rank was waiting, and for what?</summary>
#
# Its lane is hatched there. Point at the hatched stretch, and it names the cause.
# </details>
#
# <details><summary>3. A run on eight ranks says "equal to one process". What was compared?</summary>
#
# The loss and the norm of the gradient in every step, and all weights after the last one, with those of a single
# process that started from the same weights and saw the same text. The differences must be within limits that rounding
# explains.
# </details>
