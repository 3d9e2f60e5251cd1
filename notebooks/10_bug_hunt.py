# %% [markdown]
# # 10 · Bug hunt
#
# Three training runs have a fault each, their loss curves look healthy, and you find out what is wrong with them.
#
# Distributed training fails quietly. A gradient is not summed, a parameter is not gathered: the loss falls all the
# same, a little worse, and nobody can say how it should have looked. What finds such faults are instruments. Here you
# use four of them: **parity by step**, the **gradient norm**, the **fingerprint** of the weights, and the **bytes**
# sent. About 20 minutes.

# %%
import json

import lab
from lab.views import figures

healthy = {zero: lab.run(dp=2, zero=zero) for zero in (0, 1)}
assert all(run.summary["parity"]["passed"] for run in healthy.values())

# %% [markdown]
# These two runs are right: each is compared with one process that trains the same model on the same data. They are
# what we compare with. The next cell makes the three suspects. It chooses their faults by number, so that reading it
# tells you nothing yet.

# %% jupyter={"source_hidden": true}
zoo = lab.bugs()
suspects = [lab.run(bug=zoo[number].name, **{"dp": 2, **zoo[number].options}) for number in (3, 7, 14)]
first, second, third = suspects

# %% [markdown]
# ## The curves
#
# All three fall. Without the right run beside them, there is nothing to see.

# %%
for name, run in zip("ABC", suspects, strict=True):
    print(f"suspect {name}: loss", " → ".join(f"{step['loss']:.4f}" for step in run.steps))
    assert run.steps[0]["loss"] > run.steps[-1]["loss"]

# %% [markdown]
# ## The instruments
#
# One line of each for every step. *Off* is how far a value is from that of the right run, relative to it; sums that are
# added up in another order differ by some 1e-7. The *fingerprint* is a digest of the weights that a rank holds at the
# end: replicas that are equal to the last bit have the same one.


# %%
def off(ours, right):
    """Relative difference."""
    return abs(ours / right - 1)


def by_step(run, right):
    """Loss and gradient norm of each step, with how far they are off."""
    for ours, other in zip(run.steps, right.steps, strict=True):
        loss, norm = off(ours["loss"], other["loss"]), off(ours["grad_norm"], other["grad_norm"])
        print(
            f"step {ours['step']}: loss {ours['loss']:.4f} (off {loss:.0e})"
            f"   gradient norm {ours['grad_norm']:.4f}, right {other['grad_norm']:.4f} (off {norm:.0e})"
        )


def fingerprints(run):
    for rank, found in enumerate(run.info.fingerprints):
        print(f"rank {rank} holds weights {found}")


def sent(run):
    """What a rank sends on the data axis in a step, beside what the plan says that it should."""
    for row in run.communication_table:
        if row["axis"] == "dp":
            print(f"{row['op']}: {row['logical_bytes']:,} bytes, foretold {row['predicted_bytes']:,}")


by_step(healthy[1], healthy[0])
fingerprints(healthy[0])
sent(healthy[0])

# %% [markdown]
# So this is how it looks when all is right: ZeRO-1 and plain data parallel agree in every step, both replicas hold the
# same weights, and what was sent is what was foretold.
#
# ## Suspect A: two replicas, a curve like any other
#
# Its loss differs from the right one by less than you could ever see. The optimizer is Adam, the gradients are clipped
# at norm 1.

# %%
by_step(first, healthy[0])
fingerprints(first)
sent(first)

# %% [markdown]
# Look at the three facts together: what is off in step 0, by what factor, and whether the replicas agree.

# %% jupyter={"source_hidden": true}
lab.predict(
    "10-hunt-a",
    "What is wrong with suspect A?",
    choices={
        "the gradients are not summed over the replicas": "Then each replica would go on with its own gradients, and"
        " their fingerprints would differ. Here they agree, and as many bytes were sent as foretold.",
        "the gradients are divided by the number of replicas twice": "The norm is exactly half in step 0, to"
        " seven digits. Clipping to norm 1 hides it from the weights: half of the gradient is clipped to the same"
        " length. With clip=0 Adam would hide most of it too, since it divides by the gradient's own size.",
        "all replicas read the same data": "Then the loss of step 0, which is the mean over all data, would be off.",
        "the gradients of the step before are still there": "Then step 0, which has none before it, would be right.",
    },
    run=lambda: first,
    truth=lambda run: {
        "divided-twice": "the gradients are divided by the number of replicas twice",
    }[run.job.fault.bug],
    then=lambda run: lab.picture(figures.losses, [run, healthy[0]], ["suspect A", "right"]),
)

# %% [markdown]
# <details><summary><b>The cause</b>: open it when you have answered</summary>
#
# Every replica's loss is already its share of the whole batch's: the shares are added. Somebody divided the
# sum by the number of replicas once more. It is easy to do where one library averages and another sums.
#
# </details>

# %% jupyter={"outputs_hidden": true, "source_hidden": true}
ratio = first.steps[0]["grad_norm"] / healthy[0].steps[0]["grad_norm"]
print(f"norm ÷ right norm = {ratio:.8f}")
assert abs(ratio - 0.5) < 1e-6 and len(set(first.info.fingerprints)) == 1
assert off(first.steps[0]["loss"], healthy[0].steps[0]["loss"]) < 1e-6

# %% [markdown]
# ## Suspect B: ZeRO-1, two replicas
#
# With ZeRO-1 each replica updates its own half of the parameters, and then the halves are gathered.

# %%
by_step(second, healthy[1])
fingerprints(second)
sent(second)

# %% [markdown]
# Here the first step that is off says more than how far it is off. What is right in step 0, and what must therefore
# have gone wrong *after* it?

# %% jupyter={"source_hidden": true}
lab.predict(
    "10-hunt-b",
    "What is wrong with suspect B?",
    choices={
        "the gradients are not summed over the replicas": "Then the gradient norm of step 0 would be off already.",
        "the losses of micro-batches are not divided by their number": "Then the loss of step 0 would be off, by just"
        " that factor.",
        "some parameters are not gathered after the update": "Step 0 is right in loss and norm, so forward, backward"
        " and the sums are right. After it the replicas hold different weights, and fewer bytes were gathered than"
        " foretold: each replica has new values in its own half of one bucket, and old ones in the other.",
        "each rank clips by its own norm": "That would leave a gradient norm that is a little off, but the gathered"
        " weights of both replicas would be the same.",
    },
    run=lambda: second,
    truth=lambda run: {
        "bucket-not-gathered": "some parameters are not gathered after the update",
    }[run.job.fault.bug],
    then=lambda run: lab.picture(figures.losses, [run, healthy[1]], ["suspect B", "right"]),
)

# %% [markdown]
# <details><summary><b>The cause</b>: open it when you have answered</summary>
#
# One gather is missing in the program. The hidden cell below prints the difference of both programs: a
# line that is not there.
#
# </details>

# %% jupyter={"outputs_hidden": true, "source_hidden": true}
print(healthy[1].program.diff(second.program))
assert len(set(second.info.fingerprints)) == 2
assert off(second.steps[0]["grad_norm"], healthy[1].steps[0]["grad_norm"]) < 1e-6
assert off(second.steps[1]["loss"], healthy[1].steps[1]["loss"]) > 1e-4

# %% [markdown]
# ## Suspect C: everything is right, and it is slow
#
# Nobody complains about its loss. They complain about the network.

# %%
by_step(third, healthy[0])
fingerprints(third)
sent(third)

# %% jupyter={"source_hidden": true}
lab.predict(
    "10-hunt-c",
    "What is wrong with suspect C?",
    choices={
        "its buckets are too small": "Small buckets mean more messages, but the same bytes.",
        "the gradients are summed after every micro-batch": "Four micro-batches, four times the bytes. The sums are"
        " right, so that no loss, norm or weight can tell: in torch's DDP it is a forgotten no_sync().",
        "the parameters are gathered before every use": "That is ZeRO-3. Here nothing is gathered.",
        "nothing is wrong with it": "What it computes is right. What it sends is not what the plan says.",
    },
    run=lambda: third,
    truth=lambda run: {
        "reduced-every-microbatch": "the gradients are summed after every micro-batch",
    }[run.job.fault.bug],
    then=lambda run: lab.picture(figures.communication, run),
)

# %% [markdown]
# <details><summary><b>The cause</b>: open it when you have answered</summary>
#
# Gradients of micro-batches are added up on each rank and summed over the replicas once, after the last.
# This run sums after each. Its verdict passes, as it should: only the byte ledger sees it.
#
# </details>

# %% jupyter={"outputs_hidden": true, "source_hidden": true}
[row] = [row for row in third.communication_table if row["axis"] == "dp"]
print(f"{row['logical_bytes'] / row['predicted_bytes']:g} times the bytes, {third.job.plan.microbatches} micro-batches")
assert third.summary["parity"]["passed"] and row["logical_bytes"] == 4 * row["predicted_bytes"]

# %% [markdown]
# ## More of them
#
# Each of these has a curve that falls. Take one with `lab.run(bug=…)`, and find it before you read what it does.

# %%
for bug in zoo:
    print(f"{bug.name:28} {json.dumps(dict(bug.options))}")

# %% [markdown]
# ## Three questions
#
# 1. Why does step 0 tell more than step 100?
# 2. Two replicas have the same fingerprint, and both are wrong. Which instrument tells you, and which cannot?
# 3. Adam's update hardly depends on the size of the gradient. Which faults does that hide, and until when?
#
# <details><summary>Answers</summary>
#
# 1. All plans begin with the same weights, so step 0 separates what is computed wrongly (loss, norm) from what is kept
#    or updated wrongly, which shows in step 1. Later everything is off.
# 2. Parity with one process tells, in loss, norm or weights. Fingerprints compare replicas with each other only.
# 3. Those that multiply all gradients by one factor: a loss m times too large, a sum divided twice. They come to light
#    when something depends on the size: clipping, weight decay, Adam's epsilon, or another learning rate rule.
#
# </details>
