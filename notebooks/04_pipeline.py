# %% [markdown]
# # 04 · Pipeline parallel
#
# A model that is too large for one device can be cut between its layers: the first layers on rank 0, the next on rank
# 1, and so on. Then ranks wait for each other. This notebook is about how long, and how to make it less.
#
# **20 minutes**, after notebook 00. Afterwards you can read and draw pipeline charts, work out their idle time, and
# say what GPipe, 1F1B, interleaving and zero-bubble schedules gain and what they pay for it.

# %%
from fractions import Fraction

import lab
from lab.views.figures.pipeline.slot_table import slot_table

# %% [markdown]
# ## Cut the model in three
#
# The smallest example: a model of three blocks, one for each of three ranks. What a rank holds is its *stage*. The
# batch is cut in four micro-batches, and each goes through all stages, forward and then backward, before the next one
# starts. That is the `naive` way:

# %%
small = {"pp": 3, "layers": 3, "microbatches": 4, "steps": 2}
naive = lab.run(**small, schedule="naive")
lab.view(naive.replay("toy-2x4"), "timeline")

# %% [markdown]
# (This is a replay on the described cluster `toy-2x4`, as most timelines of this notebook, so that the picture is the
# same on every machine. What is replayed has really run, and has its badge:)

# %%
naive

# %% [markdown]
# At each moment one rank works and two stand idle.
#
# To count, let us forget hardware for a moment. In a chart of *slots*, the forward of one block takes one slot, its
# backward two (it has two gradients to work out: of its input and of its weights), and nothing else takes any time.
# `slot_table` makes the chart from the program that ran. F0 is the forward of micro-batch 0, and B0 its backward:

# %%
slot_table(naive)

# %%
chart = slot_table(naive)
print(f"{chart.slots} slots = 4 micro-batches × 3 stages × 3 slots; {chart.idle} of {3 * chart.slots} cells are idle")
assert chart.slots == 4 * 3 * 3 and chart.bubble == Fraction(2, 3)

# %% [markdown]
# That is how many slots a single device would need for all three blocks. Three devices, and the speed of one.
#
# Idle cells divided by all cells is the *bubble*. Here it is 2/3.
#
# ## Let the ranks work at the same time
#
# When rank 0 is done with the forward of micro-batch 0, nothing keeps it from starting micro-batch 1, while rank 1
# works on micro-batch 0. *GPipe* (Huang et al. 2019) does just that: all forwards, then all backwards.
#
# How much is still idle? Rank 2 cannot start before micro-batch 0 has come down to it, and rank 0 gets its first
# gradient late. Think, or draw it on paper; then choose.

# %% jupyter={"source_hidden": true}
lab.predict(
    "04-bubble",
    "GPipe, 3 stages, 4 micro-batches. Which part of all cells is idle?",
    choices={
        "1/4": "Of one rank's 4 micro-batches one seems lost. But filling and draining cost p − 1 = 2, not 1.",
        "1/3": "Each rank works for 4 micro-batches and stands idle for the time of 2: 2 of 6.",
        "1/2": "That is idle ÷ work, 2 to 4: the ratio. The bubble is idle ÷ (work + idle).",
        "2/3": "That was the naive way. Now the ranks overlap.",
    },
    truth=lambda run: str(slot_table(run).bubble),
    run=lambda: lab.run(**small, schedule="gpipe"),
    then=lambda run: lab.view(run.replay("toy-2x4"), "timeline"),
)

# %% [markdown]
# The heading of that timeline says more than 1/3, because there the last stage also has the output head to compute
# (the narrow boxes of rank 2). The chart counts blocks only, slot by slot:

# %%
gpipe = lab.run(**small, schedule="gpipe")
slot_table(gpipe)

# %% [markdown]
# Read it column by column. Slots 1 to 4: rank 0 runs its forwards, and each rank below starts one slot later. Slot 7:
# rank 2, the last, turns around and starts the backwards. Slot 11: the first gradient is back at rank 0, which has
# stood idle for six slots.
#
# Is that the chart of the textbooks? Here it is once more, drawn by hand after Narayanan et al. 2021 (figure 3), with
# `.` for idle. The two must agree in every cell:

# %%
drawn_by_hand = """
F0 F1 F2 F3 .  .  .  .  .  .  B0 B0 B1 B1 B2 B2 B3 B3
.  F0 F1 F2 F3 .  .  .  B0 B0 B1 B1 B2 B2 B3 B3 .  .
.  .  F0 F1 F2 F3 B0 B0 B1 B1 B2 B2 B3 B3 .  .  .  .
"""
chart = slot_table(gpipe)
print(f"{chart.slots} slots instead of {slot_table(naive).slots}; {chart.idle} of {3 * chart.slots} cells idle")
print(f"cells that differ from the drawing: {len(chart.differences(drawn_by_hand))}")
assert chart.differences(drawn_by_hand) == [] and chart.bubble == Fraction(1, 3)

# %% [markdown]
# And did the processes do what the chart says? The recording knows in which order each rank really worked:

# %%
LETTER = {"forward": "F", "backward": "B"}


def recorded_order(run, rank):
    """The forwards and backwards of blocks in the last step of a rank, in the order of their starting times."""
    mine = [op for op in run.ops if op["rank"] == rank and op["step"] == 1 and op["unit"].startswith("block")]
    mine = [op for op in mine if op["kind"] in LETTER]  # after them each bucket, also called after blocks, is updated
    return [f"{LETTER[op['kind']]}{op['microbatch']}" for op in sorted(mine, key=lambda op: op["start_ns"])]


for rank in range(3):
    print(f"rank {rank}:", *recorded_order(gpipe, rank))
    assert recorded_order(gpipe, rank) == chart.order(rank)

# %% [markdown]
# ## The formula
#
# Call the number of stages *p* and that of micro-batches *m*. Each rank works for *m* micro-batches. Besides, it
# stands idle while the pipeline fills and drains: for *p* − 1 forwards and *p* − 1 backwards, the time of *p* − 1
# micro-batches. So
#
# $$\text{bubble} = \frac{\text{idle}}{\text{total}} = \frac{p-1}{m+p-1}$$
#
# (Huang et al. 2019, section 2.3). Beware: papers also print (p − 1)/m and call it bubble (Narayanan et al. 2021,
# section 2.2.1). That is the *ratio* idle ÷ work. It is always larger, and can exceed 1.

# %%
print(" p   m   bubble counted   formula   ratio (p−1)/m")
for m in (1, 2, 4, 8, 16):
    sim = lab.simulate(pp=4, layers=4, microbatches=m, batch=16, schedule="gpipe")
    counted = slot_table(sim).bubble
    print(f" 4  {m:>2}   {float(counted):>13.1%}  {3 / (m + 3):>8.1%}   {3 / m:>12.1%}")
    assert counted == Fraction(3, m + 3)

# %% [markdown]
# With one micro-batch GPipe is as idle as the naive way. More micro-batches make the bubble smaller, but each doubling
# gains less, and a batch of 16 sequences has no more than 16 micro-batches to give. (`lab.simulate` compiles the same
# program as `lab.run`, and works out its times without starting processes.)

# %% [markdown]
# ### Formula, replay, measurement
#
# The formula assumes equal stages and free messages. The replay knows that the last stage has the output head to
# compute as well, and that messages take time. What was measured has Python in it too, and ranks that take turns on
# too few cores.

# %%
replay = gpipe.replay("toy-2x4")
print(f"formula                  {gpipe.summary['bubble']['formula']:.1%}")
print(f"counted in slots         {float(slot_table(gpipe).bubble):.1%}")
print(f"replayed on toy-2x4      {replay.summary['bubble']['replayed']:.1%}")
print(f"measured on this machine {gpipe.summary['bubble']['measured']:.1%}")

# %% [markdown]
# Play with it. Set `pp` to 4, then move the micro-batches up. Each run becomes two marks beside the formula's curve: a
# diamond, counted in slots (“replayed at unit costs”; in the curve's title just “replayed”), and a circle, measured.
# The more your ranks have to share cores, the higher the circles lie. Switch to “Replayed on toy-2x4”, and the timeline
# shows the shape of the chart.

# %%
lab.explore(knobs=("pp", "microbatches"), views=("timeline", "bubble_curve"), layers=4, pp=2, schedule="gpipe")

# %% [markdown]
# ## 1F1B: the same bubble, less memory
#
# A forward leaves *activations* behind, which its backward needs later. Under GPipe rank 0 has run all forwards before
# its first backward, so it holds the activations of all micro-batches at once. They are *in flight*.
#
# *1F1B* (one forward, one backward) starts each backward as early as it can, and then takes turns:

# %%
alternating = lab.run(**small, schedule="1f1b")
slot_table(alternating)

# %%
drawn_by_hand = """
F0 F1 F2 .  .  .  .  B0 B0 F3 B1 B1 .  B2 B2 .  B3 B3
.  F0 F1 .  .  B0 B0 F2 B1 B1 F3 B2 B2 .  B3 B3 .  .
.  .  F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 .  .  .  .
"""
chart = slot_table(alternating)
print(f"{chart.slots} slots, bubble {float(chart.bubble):.1%}: as GPipe")
print(f"cells that differ from the chart drawn by hand: {len(chart.differences(drawn_by_hand))}")
assert chart.differences(drawn_by_hand) == [] and chart.bubble == slot_table(gpipe).bubble
assert all(recorded_order(alternating, rank) == chart.order(rank) for rank in range(3))

# %% [markdown]
# (By hand after Narayanan et al. 2021, figure 4.) The step takes as long as before. But follow rank 0: it runs three
# forwards, and then waits for a backward before it starts the fourth. Never are more than three in flight.
#
# With more micro-batches the gap gets wide. Four stages and eight micro-batches; the bytes are measured in the
# processes:

# %%
from engine.program.dryrun import dry_run, in_flight

deep = {"pp": 4, "layers": 8, "microbatches": 8, "steps": 1}
runs = {name: lab.run(**deep, schedule=name) for name in ("gpipe", "1f1b")}
for name, run in runs.items():
    held = [row["activations_peak"] for row in run.summary["memory"]["per_rank"]]
    print(f"{name:<6} in flight {in_flight(run.program)}   MB at the peak: {[round(b / 1e6, 1) for b in held]}")
assert in_flight(runs["gpipe"].program) == (8, 8, 8, 8) and in_flight(runs["1f1b"].program) == (4, 3, 2, 1)
peak = {name: run.summary["memory"]["per_rank"][0]["activations_peak"] for name, run in runs.items()}
assert peak["gpipe"] == 2 * peak["1f1b"]

# %%
lab.view(runs["1f1b"], "memory")

# %% [markdown]
# Under GPipe the number in flight is *m*, so memory grows with every micro-batch that you add to shrink the bubble.
# Under 1F1B rank *r* holds *p* − *r*, however many micro-batches there are. Megatron-LM prefers it for this reason
# (Narayanan et al. 2021, section 2.2.1).
#
# ## Interleaving: a smaller bubble, more messages
#
# Cut the model into more pieces than there are ranks, and deal them out like cards. With two *chunks* each, rank 0 of
# two holds blocks 0 and 2, rank 1 blocks 1 and 3. To start working, rank 1 then waits for one block of rank 0, not for
# two (Narayanan et al. 2021, section 2.2.2). First 1F1B, then the same work interleaved:

# %%
two = {"pp": 2, "layers": 4, "microbatches": 4, "steps": 1}
plain = lab.run(**two, schedule="1f1b")
slot_table(plain)

# %%
interleaved = lab.run(**two, schedule="interleaved", chunks=2)
slot_table(interleaved)

# %% [markdown]
# `c0` and `c1` are the two chunks of a rank. The same work takes 27 slots, not 30. With *v* chunks the bubble is (p −
# 1)/(v·m + p − 1). The price: a micro-batch now changes ranks three times on its way, not once. (And a rank holds more
# activations, as the table of all schedules below shows.)

# %%
for name, run, v in (("1f1b", plain, 1), ("interleaved", interleaved, 2)):
    chart, sent = slot_table(run), [op for op in run.ops if op["kind"] in ("send_act", "send_grad")]
    volume = sum(op["logical_bytes"] for op in sent)
    print(f"{name:<12} {chart.slots} slots, bubble {float(chart.bubble):.1%}, {len(sent)} messages, {volume:,} bytes")
    assert chart.slots == {1: 30, 2: 27}[v] and chart.bubble == Fraction(1, v * 4 + 1)
    assert len(sent) == 2 * 4 * (2 * v - 1)  # up and down, four micro-batches, one for each border between stages

# %% [markdown]
# ## Zero bubble: split the backward
#
# Why does a backward take two slots? It works out two things. For a linear layer y = x·Wᵀ they are
#
# - **I**, the gradient of the *input*: grad_x = grad_y·W. The rank before is waiting for it.
# - **W**, the gradient of the *weights*: grad_W = grad_yᵀ·x. Nobody waits for it until the optimizer step.
#
# Each is a matrix product as large as that of the forward, so each takes one slot. Now do I at once and send it off,
# and keep W for a moment in which the rank would stand idle (Qi et al. 2023). Their schedule ZB-H1 is 1F1B with W
# moved into the bubbles:

# %%
split = lab.run(**small, schedule="zb-h1")
slot_table(split)

# %%
chart = slot_table(split)
print(f"{chart.slots} slots instead of {slot_table(alternating).slots}; bubble {float(chart.bubble):.1%}")
print(f"in flight until W: {in_flight(split.program)}, under 1F1B: {in_flight(alternating.program)}")
assert chart.slots == 14 and chart.bubble == Fraction(2, 3 * 4 + 2) and split.summary["parity"]["passed"]
assert in_flight(split.program) == (3, 3, 3) and in_flight(alternating.program) == (3, 2, 1)

# %% [markdown]
# Each rank still has its 12 slots of work, but stands idle for 2, not 6. It is not quite free: until its W is done, a
# micro-batch stays in memory, so now *every* rank holds three. The result is the same, up to rounding: this run is
# equal to one process, too.
#
# ZB-H2 starts more forwards early, so that it can always fill a gap with some W. ZB-V (section 6 of the paper's arXiv
# version) gives each rank two chunks, one on the way down and one on the way back up, and needs no more memory than
# rank 0 does under 1F1B. All schedules on four stages and eight micro-batches:

# %%
both = {"interleaved", "zb-v"}  # these need two chunks on each rank
print("schedule      bubble   without filling   in flight on ranks 0…3   messages")
for name in ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"):
    v = 2 if name in both else 1
    sim = lab.simulate(**deep, schedule=name, chunks=v)
    counted, own = slot_table(sim).bubble, dry_run(sim.program).span_bubble()
    messages = sum(action.kind.startswith("send") for _, _, action in sim.program)
    held = ", ".join(f"{n / v:g}" for n in in_flight(sim.program))
    print(f"{name:<12} {float(counted):>7.1%}   {float(own):>15.1%}   {held:<24} {messages}")
    assert counted == Fraction(sim.summary["bubble"]["formula"]).limit_denominator(1000)
    assert (own == 0) == (name in ("zb-h2", "zb-v"))

# %% [markdown]
# In flight is counted in whole stages: a chunk of two counts half. *Without filling* is how the zero-bubble papers
# count: each rank's clock starts with its own first forward. Then ZB-H2 and ZB-V have no bubble at all. The wait
# before that first forward can be filled by the step before, if the ranks do not meet between two steps. Here they do,
# to add up the norm of the gradient.
#
# The same schedules as pictures:

# %%
lab.view(runs["1f1b"], "schedules")

# %% [markdown]
# ## The traffic jam: unequal stages
#
# Every chart so far had equal stages. `partition` sets how many blocks each stage gets. Six blocks on three ranks,
# first two each, then one, one and four:

# %%
even = lab.run(pp=3, layers=6, microbatches=4, steps=1, partition=(2, 2, 2))
jam = lab.run(pp=3, layers=6, microbatches=4, steps=1, partition=(1, 1, 4))
lab.view(jam.replay("toy-2x4"), "timeline")

# %%
slow, fast = slot_table(jam), slot_table(even)
print(f"2, 2, 2: {fast.slots} slots, bubble {float(fast.bubble):.1%}")
print(f"1, 1, 4: {slow.slots} slots, bubble {float(slow.bubble):.1%}")
work = sum(cell != "." for cell in slow.rows[2])
assert (fast.slots, slow.slots, work) == (36, 54, 48) and (fast.bubble, slow.bubble) == (Fraction(1, 3), Fraction(5, 9))

# %% [markdown]
# The slowest stage sets the pace, as the slowest lorry does on a narrow road. Rank 2 is busy nearly all the time, and
# the two others wait for it. No schedule helps: rank 2 alone has 4 micro-batches × 4 blocks × 3 slots = 48 slots of
# work.
#
# Equal numbers of blocks are not yet equal stages. The last stage also has the output head, and with a large
# vocabulary that is a lot of work. Left to itself, the lab cuts by cost:

# %%
large = {"pp": 3, "layers": 6, "microbatches": 4, "vocab": 2048, "cluster": "toy-2x4"}
by_count = lab.simulate(**large, partition=(2, 2, 2))
by_cost = lab.simulate(**large)
for name, sim in (("equal numbers", by_count), ("equal costs", by_cost)):
    blocks = [len({a.unit for a in lane if a.unit.startswith("block")}) for lane in sim.program.lanes]
    print(f"{name:<14} blocks {blocks}, step {sim.summary['step_seconds']:.2f} s on toy-2x4")
assert by_cost.summary["step_seconds"] < by_count.summary["step_seconds"]

# %% [markdown]
# How would you cut unequal layers? It is an exercise, if you like. This answer never looks at the costs: every stage
# gets the same number of layers, and the last one also what is left over. The check says what is wrong with it. Make it
# better (`lab.hint("partition_layers")` helps):

# %%
lab.task("partition_layers")


# %%
def partition_layers(costs, stages):
    each = len(costs) // stages
    cuts = [*range(0, each * stages, each), len(costs)]
    return [list(range(cuts[i], cuts[i + 1])) for i in range(stages)]


lab.check("partition_layers", partition_layers)

# %% [markdown]
# ## Now all knobs
#
# Start from 1F1B and change the schedule. What happens to the hatched parts, and what to the memory?

# %%
lab.explore(knobs=("pp", "microbatches", "schedule", "chunks"), views=("timeline", "memory"), layers=8, pp=4)

# %% [markdown]
# ## Three questions
#
# <details><summary>1. Eight stages, and the bubble of 1F1B should stay below 10 %. How many micro-batches do you need?
# </summary>
#
# (p − 1)/(m + p − 1) = 7/(m + 7) < 1/10, so m > 63: 64 or more.
# </details>
#
# <details><summary>2. What does 1F1B gain over GPipe, if the bubble is the same?</summary>
#
# Memory. Rank r holds the activations of at most p − r micro-batches, not of all m. So m can be made large, and *that*
# makes the bubble small.
# </details>
#
# <details><summary>3. Why may the weight part of a backward wait, and the input part not?</summary>
#
# The rank before needs the input's gradient to go on with its own backward. The weights' gradients are needed only by
# the optimizer, at the end of the step. While they wait, the activations they need stay in memory.
# </details>

# %% jupyter={"source_hidden": true}
assert Fraction(7, 64 + 7) < Fraction(1, 10) <= Fraction(7, 63 + 7)  # the first answer
