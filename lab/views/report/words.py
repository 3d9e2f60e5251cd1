"""A run in words: what was run, how to run it again, what every number means."""

from __future__ import annotations

from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.model.family import family_of
from engine.prediction.formulas import parameters
from lab.verdict import LIMIT, RULE_IN_WORDS
from lab.wording import (
    RESIDENT,
    WAITING_FOR_CORE,
    listed,
    mesh_words,
    parameter_count,
    power,
    size_words,
)


def job_in_words(job: Job, simulated: bool = False, by_hand: bool = False) -> str:
    """One or two sentences a reader can picture the run from. simulated: there were no processes. by_hand: it ran a
    program or schedule of somebody's own."""
    model, plan, training = job.model, job.plan, job.training
    size = parameter_count(parameters(job))
    shape = size_words(model, seq="{} tokens a sequence", vocab="")
    model_words = f"{family_of(model).label} of {size} ({shape})"
    ranks = mesh_words(plan)
    sequences = f"{training.batch:,} sequences"
    if simulated:
        whom = f"{job.world_size:,} ranks = {ranks}" if job.world_size > 1 else "one rank"
        return f"{model_words}: a step of {sequences} simulated on {whom}{_how(job)}."
    who = f"{job.world_size} processes = {ranks}" if job.world_size > 1 else "one process"
    steps = f"{training.steps} step{'s' if training.steps != 1 else ''} of {sequences}"
    return f"{model_words}, trained for {steps} by {who}{_how(job, by_hand)}."


def _how(job: Job, by_hand: bool = False) -> str:
    plan = job.plan
    words = [f"ZeRO stage {job.effective_zero}"] if job.effective_zero else []
    if by_hand:
        words.append(f"an order written by hand over {plan.microbatches} micro-batches")
    elif plan.pp > 1:
        chunks = f" with {plan.chunks} chunks a rank" if plan.chunks > 1 else ""
        words.append(f"the {SCHEDULES[plan.schedule].label} schedule{chunks} over {plan.microbatches} micro-batches")
    elif plan.microbatches > 1:
        words.append(f"gradients accumulated over {plan.microbatches} micro-batches")
    words += ["sequence parallelism"] if job.scatters_sequence else []
    words += ["no overlap"] if job.world_size > 1 and not plan.overlap else []
    return f", with {listed(words)}" if words else ""


OF_REAL_RUNS = ("Parity", "Step shown", "Waiting for a core")
"""What says nothing of a simulated step."""


def _bubble_formulas() -> str:
    """Each formula with the schedules that have it."""
    of: dict[str, list[str]] = {}
    for schedule in SCHEDULES:
        if schedule.bubble_words:
            of.setdefault(schedule.bubble_words, []).append(schedule.label)
    return ", ".join(f"{words} for {' and '.join(labels)}" for words, labels in of.items())


DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "Parity",
        "The same job was also run as one process, with the same weights and data, and once more so with its sums in"
        f" another order. {RULE_IN_WORDS} Equal: never more than {power(LIMIT)}. Equal until rounding grew: more, but"
        " within what is allowed. Differs: beyond it in any step. Weights: some of each parameter after each step, all"
        " after the last.",
    ),
    (
        "Step shown",
        "Of the steps all ranks completed, without the first (it warms up), the one of median length. "
        "Its time runs from the first start to the last end on the compute streams of all ranks.",
    ),
    (
        "Bubble",
        "Idle ÷ total on the compute streams of all ranks, in the step shown. Forward, backward and "
        "optimizer step are busy, collectives inside layers included; waits, gaps, and communication "
        "inside the optimizer step are idle. Replayed: the same program with a block's forward "
        "costing 1, its backward 2 (1 for each part of a split one) and all else nothing. Formula: "
        f"{_bubble_formulas()}; p pipeline ranks, m micro-batches, v chunks.",
    ),
    (
        "Waiting for a core",
        f"A part of what looks busy: {WAITING_FOR_CORE}. More processes than cores take turns.",
    ),
    (
        "Idle causes",
        "Waits for another rank to compute: its message was not sent yet. Waits for bytes on their "
        "way: the message was sent, or all members had joined the collective. Waits for a rank to "
        "join: a member of the collective was late. Between operations: the rank had work and waited "
        "for nothing but Python or a free core. Nothing left to do: it had finished the step before "
        "others.",
    ),
    (
        "Predicted against measured",
        "A replay carries out the recorded step on a described cluster: the same operations in the same order, each at "
        "the cost described. Both steps are split on every rank into work by kind, waiting for a core and idle time by "
        "cause, which add up to the step; the difference is measured − predicted. Critical path: from the step's last "
        "end back to its beginning, always through what was waited for.",
    ),
    (
        "Hidden communication",
        "Time(communicating and computing) ÷ time(communicating), intervals merged per rank, both "
        "summed over ranks. A collective counts from its issue to its completion; a message, at its "
        "receiver, from when it was sent and asked for until it was there or picked up. Computing "
        "leaves out collectives inside layers and waits.",
    ),
    (
        "Memory",
        "Every byte a rank's ledger holds is in one category. Parameters, gradients, optimizer state: "
        "held at the end. Activations (saved for backward), gathered (full parameters held for a "
        "moment), buffers (messages and reductions): the most at any time. Highest total: the most of "
        "all together at any one time. Predicted: from the job's numbers and its program alone. "
        f"{RESIDENT}",
    ),
    (
        "Counted bytes",
        "What the algorithm moves per rank and step: all-reduce 2(n−1)/n·S, reduce-scatter and "
        "all-gather (n−1)/n·S, a message S; on the lowest rank that uses the axis. On the wire: what "
        "the backend really moves (gloo carries out a reduce-scatter as a whole all-reduce).",
    ),
    (
        "Rank to rank",
        "Messages as sent; a collective's counted bytes go to the next rank of its group, as in a ring.",
    ),
    (
        "Step time, tokens/s",
        "Last end − first start over all ranks; batch × sequence length ÷ that time.",
    ),
)
