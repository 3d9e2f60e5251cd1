# %% [markdown]
# # 08 · Your own schedule
#
# Write the order of a pipeline by hand, break it, run it on real processes, and beat 1F1B.
#
# A schedule is nothing but an order: for each rank, which forward and which backward comes next. Everything else,
# the messages, the waits, the gathers, follows from it. Here you write that order yourself. About 20 minutes.

# %%
import lab

p, m = 4, 8  # pipeline ranks and micro-batches, in all of this notebook
size = {"pp": p, "microbatches": m, "layers": p, "partition": (1,) * p, "steps": 2}

# %% [markdown]
# ## From a grid to an order
#
# GPipe runs all forwards, then all backwards. In the grid of ranks × time every box is one unit of work: `F` takes
# one slot, `B` two. The dots are slots in which a rank has nothing to do.

# %%
from engine.job.job import Job
from engine.program.checks.check import grid
from engine.program.dryrun import dry_run, in_flight
from engine.program.handwritten import schedule_program


def score(text):
    """Draws an order, and says its slots, its idle share and the most micro-batches that each rank holds at once."""
    program = schedule_program(Job.from_options(**size), text)
    walk = dry_run(program)
    print(grid(program, width=120))
    print(f"{walk.makespan} slots, bubble {float(walk.bubble()):.0%}, held at once {in_flight(program)}\n")
    return walk.makespan, in_flight(program)


forwards = " ".join(f"F{k}" for k in range(m))
backwards = " ".join(f"B{k}" for k in range(m))
gpipe = "\n".join(f"{forwards} {backwards}" for rank in range(p))
print(gpipe, "\n")
gpipe_slots, gpipe_held = score(gpipe)

# %% [markdown]
# The text above the grid *is* the schedule: a line for each rank. Reading a line of the grid from left to right,
# without the dots, gives it back.
#
# Now 1F1B. Each rank begins its backwards as early as it can. The time is the same, and so is the bubble,
# (p − 1)/(m + p − 1): what shrinks is memory.


# %%
def warm_up_then_alternate(rank, warmup):
    order = [f"F{k}" for k in range(warmup)]
    for k in range(m - warmup):
        order += [f"F{k + warmup}", f"B{k}"]
    return " ".join(order + [f"B{k}" for k in range(m - warmup, m)])


one_f_one_b = "\n".join(warm_up_then_alternate(rank, p - 1 - rank) for rank in range(p))
slots, held = score(one_f_one_b)

assert slots == gpipe_slots == 3 * (m + p - 1)
assert gpipe_held == (m,) * p and held == (4, 3, 2, 1)

# %% [markdown]
# ## Break it on purpose
#
# Suppose rank 0 wants to be done with each micro-batch before it begins the next, while rank 1 wants to see two
# before it sends anything back. Both wishes are reasonable. Together they stop the training for ever:

# %%
patient = " ".join(f"F{k} F{k + 1} B{k} B{k + 1}" for k in range(0, m, 2))
hasty = " ".join(f"F{k} B{k}" for k in range(m))
broken = "\n".join([hasty, patient, patient, patient])

try:
    lab.run(**size, schedule=broken)
except ValueError as refusal:
    message = str(refusal)
    print(message)

assert "waits for ever for send_grad mb0 from pipeline 1" in message

# %% [markdown]
# No process was started. The order is walked through first, and the walk ends with every rank waiting: rank 0 for
# the gradient of micro-batch 0, which rank 1 sends only after the forward of micro-batch 1, which rank 0 runs only
# after that gradient. The star marks where rank 0 stands. On a cluster without this check you would see a hang, and
# later a time-out.

# %% [markdown]
# ## Run it, and prove it
#
# A schedule that passes the walk runs on real processes like any other, and is compared with one process: whatever
# the order, the sums are the same sums.

# %%
run = lab.run(**size, schedule=one_f_one_b)
assert run.summary["parity"]["passed"]
assert not run.by_hand  # action for action what schedule="1f1b" compiles to
lab.view(run, "timeline")

# %% [markdown]
# What you see is measured, and your processes share this machine's cores. On a described cluster, where every rank
# has a device of its own, the shape of the grid above comes out:

# %%
lab.view(run.replay("toy-2x4"), "timeline")

# %% [markdown]
# ## Fill the bubble
#
# A backward does two things. Its **input part** `I` makes the gradient that the rank before waits for. Its **weight
# part** `W` makes the gradients of the rank's own weights, and nobody waits for those before the optimizer's step
# (Qi et al. 2023, Zero Bubble Pipeline Parallelism). Each takes one slot. So first of all, run `W` right after `I`:
# the same work in the same order, and nothing put off.

# %%
split = one_f_one_b.replace("B", "I")
split = "\n".join(" ".join(f"{w} W{w[1:]}" if w[0] == "I" else w for w in line.split()) for line in split.splitlines())
print(split)

# %% jupyter={"source_hidden": true}
lab.predict(
    "08-split",
    f"1F1B takes {slots} slots. Cut every B into I and, right after it, W. How many slots does the step take now?",
    choices={
        f"{slots}": "Tempting, since no rank has less to do. But the rank before waits for I only, no longer for W.",
        f"{slots - (p - 1)}": "One slot less at each rank that a gradient passes on its way back to rank 0.",
        f"{3 * m}": "That is the work of one rank, without any bubble. The ranks still wait for the first forward.",
    },
    truth=lambda run: str(dry_run(run.program).makespan),
    run=lambda: lab.run(**size, schedule=split),
    then=lambda run: lab.view(run.replay("toy-2x4"), "timeline"),
)

# %%
split_slots, split_held = score(split)

assert split_slots == slots - (p - 1)  # the gradient needs one slot less at each rank on its way back
assert split_held == held

# %% [markdown]
# Nothing was put off yet, and the step is already shorter: the gradient goes back after one slot instead of two, at
# each of the three ranks it passes on its way to rank 0. The dots that are left could hold weight parts that were
# put off.

# %% [markdown]
# ## Your turn: 1F1B
#
# First the classic. The start below is GPipe's order: see what the check says, then change it.
# `lab.hint("schedule_1f1b")` helps, `lab.solution("schedule_1f1b")` shows one way.

# %%
lab.task("schedule_1f1b")


# %%
def schedule_1f1b(rank, ranks, microbatches):
    forwards = [f"F{k}" for k in range(microbatches)]
    backwards = [f"B{k}" for k in range(microbatches)]
    return " ".join(forwards + backwards)


lab.check("schedule_1f1b", schedule_1f1b)

# %% [markdown]
# ## Your turn: your own
#
# Now beat it: fewer slots than 1F1B, and no rank may hold more micro-batches than the first rank of 1F1B does. Your
# schedule is validated, run on four real processes, compared with one process, and scored beside the known ones.

# %%
lab.task("own_schedule")


# %%
def own_schedule(p, m, v):
    order = [f"F{k} I{k}" for k in range(m)]  # a start that puts off all weight parts
    order += [f"W{k}" for k in range(m)]
    return "\n".join([" ".join(order)] * p)  # the same for every rank


lab.check("own_schedule", own_schedule)

# %% [markdown]
# The start above trains, equal to one process, and misses both targets. The card says by how much, and what the known
# schedules do. ZB-H1 needs the fewest slots of those shown, in the memory of 1F1B's first rank:

# %%
zb_h1 = lab.run(**size, schedule="zb-h1")
zb_slots, zb_held = dry_run(zb_h1.program).makespan, in_flight(zb_h1.program)

assert zb_h1.summary["parity"]["passed"]
assert zb_slots < split_slots < slots and zb_held == (held[0],) * p
print(f"1F1B {slots} slots, with W right after I {split_slots}, ZB-H1 {zb_slots}; ZB-H1 holds {zb_held}")
lab.view(zb_h1.replay("toy-2x4"), "timeline")

# %%
lab.exercises()

# %% [markdown]
# ## Three questions
#
# 1. GPipe and 1F1B have the same bubble. Why does anyone use 1F1B?
# 2. Splitting B into I and W made the step shorter though no work was saved and nothing was put off. Where did the
#    time go?
# 3. What does putting off weight parts cost?
#
# <details><summary>Answers</summary>
#
# 1. Memory. Under GPipe every rank holds all m micro-batches at once; under 1F1B rank r holds at most p − r, however
#    many micro-batches there are. So 1F1B can have more of them, and with more of them the bubble is smaller.
# 2. Into the way back. A rank used to wait until the rank after it had finished the whole backward; now it waits for
#    the input part only, and the weight part runs meanwhile.
# 3. Memory again: a micro-batch's activations are held until its weight part is done. ZB-H1 puts off as much as fits
#    into what 1F1B's first rank holds, so that every rank now holds as much as that one.
#
# </details>
