"""Closed forms: what a plan should hold and send, from the job's numbers alone.

Nothing here looks at a program or a run, so that "measured beside predicted" compares two independent answers.
n = s·b tokens of a micro-batch, t tensor degree, N data degree, m micro-batches, e bytes of an element
(`engine.job.precision`).
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

from engine.communication.collective_bytes import logical_bytes
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.model.buckets import FP32, lane_buckets
from engine.model.params import padded_vocab, replicated_size, unit_size
from engine.model.units import TOKENS, lane_units, needs, recomputes, stage_lane, token_lanes
from engine.program.compile import compile_job
from engine.program.dryrun import in_flight

INT64 = 8


def bubble_formula(job: Job) -> Fraction | None:
    """Idle ÷ total with equal stages and free communication, as the schedule's own file derives it.

    None where no formula is known; what a program idles is counted by `engine.program.dryrun`. Raises `Unknown`.
    """
    plan, schedule = job.plan, SCHEDULES[job.plan.schedule]
    return schedule.bubble(plan.pp, plan.microbatches, plan.chunks) if schedule.bubble else None


def in_flight_formula(job: Job, lane: int) -> int:
    """Micro-batch activations (of one chunk each) that pipeline rank `lane` holds at most, until their weight parts.

    Counted on the program where the schedule has no formula. Raises `Unknown`.
    """
    plan, schedule = job.plan, SCHEDULES[job.plan.schedule]
    if schedule.in_flight is None:
        return in_flight(compile_job(job))[lane]
    return schedule.in_flight(plan.pp, plan.microbatches, plan.chunks, lane)


def parameters(job: Job) -> int:
    """Parameters of the whole model: 12 L h² (1 + 13/(12h) + (V+s)/(12 L h)) + 2h, and V·h more if not tied.

    Narayanan et al. 2021, section 5.1, equation 2; the 2h are the final norm, which the paper leaves out.
    """
    h, layers, vocab, s = job.model.hidden, job.model.layers, job.model.vocab, job.model.seq
    ends = vocab * h * (1 if job.model.tied else 2) + s * h + 2 * h
    return layers * (12 * h * h + 13 * h) + ends


def state_bytes(job: Job, lane: int) -> dict[str, int]:
    """Bytes of params, grads and optimizer on each rank of a lane; padding of buckets included.

    fp32 Adam per parameter: 16 (ZeRO-0), 8 + 8/N (1), 4 + 12/N (2), 16/N (3); with 2-byte parameters and gradients 16,
    4 + 12/N, 2 + 14/N, 16/N (Rajbhandari et al. 2020, figure 1, with K = 8 and K = 12).
    """
    zero, size = job.effective_zero, job.precision
    whole = sum(b.padded for b in lane_buckets(job, lane))
    shard = sum(b.shard for b in lane_buckets(job, lane))
    return {
        "params": (shard if zero == 3 else whole) * size.compute,
        "grads": (shard if zero >= 2 else whole) * size.grad,
        "optimizer": (shard if zero else whole) * size.optimizer,
    }


def activation_bytes(job: Job, unit: str) -> int:
    """Bytes a unit saves for the backward of one micro-batch.

    Korthikanti et al. 2022, equations 1 to 4: per block 4·e·n·h of norms' inputs and outputs (÷ t only with sequence
    parallelism), 12·e·n·h/t inside attention and MLP, e·a·s·n/t attention probabilities; with dropout 2·n·h of masks
    (÷ t only with sequence parallelism), a·s·n/t of the mask and e·a·s·n/t of what it leaves of the probabilities.
    With e = 2 and dropout that is the paper's s·b·h·(34 + 5·a·s/h). Besides it 16·n bytes of norm statistics, which
    the paper leaves out. Selective recomputation drops all that has a·s·n in it.
    """
    model, t, e = job.model, job.plan.tp, job.precision.compute
    n, h = model.seq * job.microbatch_size, model.hidden
    spread = t if job.scatters_sequence else 1
    norm = (2 * n * h * e + 2 * n * FP32) // spread  # its input, its output, mean and 1/deviation
    mask = n * h // spread if model.dropout else 0  # a byte each
    if unit == "embedding":
        return mask + (n * (INT64 + 1) if t > 1 else 0)  # looked-up ids, and which of them live elsewhere
    if unit == "head":
        return norm + n * padded_vocab(model, t) // t * FP32 + n * (INT64 + 1)  # fp32 probabilities
    inside = 12 * n * h * e  # qkv 3, context 1, MLP 4 + 4
    if job.plan.recompute != "selective":
        inside += model.heads * model.seq * n * (2 * e + 1 if model.dropout else e)
    return 2 * (norm + mask) + inside // t


def kept_bytes(job: Job, unit: str) -> int:
    """What a unit's forward leaves until backward, or until it is recomputed: then its input, n·h, alone."""
    return message_bytes(job) if recomputes(job, unit) else activation_bytes(job, unit)


def held_for_weight_bytes(job: Job, unit: str) -> int:
    """Bytes the input part of a split backward leaves for the weight part of one micro-batch.

    Of every linear its input and its output's gradient: a block's qkv and MLP-up inputs (2·n·h, ÷ t only with sequence
    parallelism) and 3 + 4 gradients n·h/t, its attention-out and MLP-down inputs (1 + 4)·n·h/t and two whole gradients
    n·h; and the made gradients of biases and norms (13·h, 7 of them ÷ t).
    """
    model, t = job.model, job.plan.tp
    n, h = model.seq * job.microbatch_size, model.hidden
    spread = t if job.scatters_sequence else 1
    if unit == "head":
        return (n * h // spread + n * padded_vocab(model, t) // t + 2 * h) * job.precision.compute
    return (2 * n * h // spread + 12 * n * h // t + 2 * n * h + 6 * h + 7 * h // t) * job.precision.compute


def message_bytes(job: Job) -> int:
    """One activation or gradient between stages: b·s·h, scattered under sequence parallelism."""
    n = job.model.seq * job.microbatch_size
    return n * job.model.hidden * job.precision.compute // (job.plan.tp if job.scatters_sequence else 1)


def model_flops(job: Job) -> int:
    """FLOPs that a step of the whole job needs, without recomputation: what MFU counts.

    72·B·L·s·h²·(1 + s/(6h) + V/(12·L·h)) (Narayanan et al. 2021, appendix; Korthikanti et al. 2022, equation 7): a
    forward is 24·h² + 4·s·h per token and block and 2·h·V per token in the head, a backward twice that.
    """
    model = job.model
    forward = model.layers * (24 * model.hidden**2 + 4 * model.seq * model.hidden) + 2 * model.hidden * model.vocab
    return 3 * forward * job.training.batch * model.seq


def predicted_communication(job: Job, lane: int = 0) -> dict[tuple[str, str], int]:
    """Logical bytes per step of each rank at pipeline coordinate `lane`, by (axis, operation)."""
    total: Counter[tuple[str, str]] = Counter()
    for part in (_tensor, _norms, _data, _tie, _messages, _scalars):
        total.update(part(job, lane))
    return {key: nbytes for key, nbytes in sorted(total.items()) if nbytes}


def _tensor(job: Job, lane: int) -> dict[tuple[str, str], int]:
    """Inside layers: 4 all-reduces of [s, b, h] a block and micro-batch; with sequence parallelism 6 all-gathers (two
    of them repeat the forward's for the weight gradient) and 4 reduce-scatters; 3 all-reduces of [s, b] for the loss.
    A recomputed block repeats the two, or two and two, of its forward.
    """
    t, m = job.plan.tp, job.plan.microbatches
    if t == 1:
        return {}
    n = job.model.seq * job.microbatch_size
    units = lane_units(job, lane)
    blocks, embedding = sum(u.startswith("block") for u in units), int("embedding" in units)
    head, again = int("head" in units), sum(recomputes(job, u) for u in units)
    size = n * job.model.hidden * job.precision.compute
    loss = 3 * head * logical_bytes("all_reduce", t, n * FP32)
    if not job.scatters_sequence:
        reduces = 4 * blocks + 2 * again + embedding + head
        return {("tp", "all_reduce"): m * (reduces * logical_bytes("all_reduce", t, size) + loss)}
    gathers, scatters = 6 * blocks + 2 * again + embedding + 2 * head, 4 * blocks + 2 * again + embedding + head
    return {
        ("tp", "all_gather"): m * gathers * logical_bytes("all_gather", t, size),
        ("tp", "reduce_scatter"): m * scatters * logical_bytes("reduce_scatter", t, size),
        ("tp", "all_reduce"): m * loss,
    }


def _norms(job: Job, lane: int) -> dict[tuple[str, str], int]:
    """Sequence parallelism sums the gradients of the parameters every tensor rank holds whole."""
    if not job.scatters_sequence:
        return {}
    t, times = job.plan.tp, _reductions_per_step(job)
    sizes = [sum(replicated_size(job.model, t, unit) for unit in bucket.units) for bucket in lane_buckets(job, lane)]
    return {
        ("tp", "all_reduce"): times * sum(logical_bytes("all_reduce", t, size * job.precision.grad) for size in sizes)
    }


def _data(job: Job, lane: int) -> dict[tuple[str, str], int]:
    """Gradients and parameters over the data axis: 2(N−1)/N·Ψ for ZeRO-0 and 1; ZeRO-2 and 3 repeat per micro-batch."""
    n, zero, size = job.plan.dp, job.effective_zero, job.precision
    if n == 1:
        return {}
    buckets = lane_buckets(job, lane)
    if zero == 0:
        return {("dp", "all_reduce"): sum(logical_bytes("all_reduce", n, b.padded * size.grad) for b in buckets)}
    gathers = {b.name: _gathers_per_step(job, lane, b.name) if zero == 3 else 1 for b in buckets}
    scattered = sum(logical_bytes("reduce_scatter", n, b.padded * size.grad) for b in buckets)
    gathered = sum(logical_bytes("all_gather", n, b.padded * size.compute) * gathers[b.name] for b in buckets)
    return {
        ("dp", "reduce_scatter"): scattered * _reductions_per_step(job),
        ("dp", "all_gather"): gathered,
    }


def _reductions_per_step(job: Job) -> int:
    return job.plan.microbatches if job.effective_zero >= 2 else 1


def _gathers_per_step(job: Job, lane: int, bucket: str) -> int:
    """ZeRO-3: once before each forward and each backward that uses it, or once a step if kept."""
    if job.plan.keep_gathered:
        return 1
    users = [u for u in lane_units(job, lane) if u != TOKENS and bucket in needs(job.model, u)]
    return 2 * len(users) * job.plan.microbatches


def _tie(job: Job, lane: int) -> dict[tuple[str, str], int]:
    if lane not in token_lanes(job):
        return {}
    size = unit_size(job.model, job.plan.tp, TOKENS)
    shards = job.plan.dp if job.effective_zero else 1
    return {("tie", "all_reduce"): logical_bytes("all_reduce", 2, -(-size // shards) * job.precision.grad)}


def _messages(job: Job, lane: int) -> dict[tuple[str, str], int]:
    """b·s·h per boundary, micro-batch and direction."""
    p, m = job.plan.pp, job.plan.microbatches
    if p == 1:
        return {}
    home = [stage_lane(job.plan, s) for s in range(p * job.plan.chunks)]
    hops = [(a, b) for a, b in pairwise(home) if a != b]
    onward, inward = sum(a == lane for a, _ in hops), sum(b == lane for _, b in hops)
    times = {"send_act": onward, "recv_grad": onward, "recv_act": inward, "send_grad": inward}
    return {("pp", op): count * m * message_bytes(job) for op, count in times.items()}


def _scalars(job: Job, lane: int) -> dict[tuple[str, str], int]:
    """Loss and squared gradient norm, two doubles, summed over one axis after the other."""
    degrees = [d for d in (job.plan.tp, job.plan.pp, job.plan.dp) if d > 1]
    return {("world", "all_reduce"): sum(logical_bytes("all_reduce", d, 16) for d in degrees)}
