"""Why the winner wins: its nearest losers, each in one sentence with the knob, the physical reason and a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from engine.cluster.cluster import Cluster
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.unit_kinds import kind_of
from engine.model.units import stages
from engine.planner.plans import Space, shapes
from engine.planner.result import Candidate, Search
from engine.recording.tables import CATEGORY_WORDS

PART_WORDS = {
    "compute": "computing", "recompute": "computing activations again", "tensor": "tensor collectives",
    "pipeline": "messages between stages", "data": "waiting for the data axis", "bubble": "the pipeline bubble",
    "optimizer": "the optimizer step",
}  # fmt: skip


def sentences(found: Search, cluster: Cluster) -> tuple[str, ...]:
    """The winner, the nearest loser for each knob, what does not fit, idle GPUs, and how many might be faster yet."""
    best = found.winner
    out = [_winner(best, cluster)]
    said: set[Job] = set()
    for knob, other in found.nearest.items():
        out += [] if other.job in said else [_loser(knob, best, other, cluster)]
        said.add(other.job)  # the nearest plan of another knob may be the same
    out += [_dropped(one.count, one.category, one.over, one.example, found.limit_bytes) for one in found.dropped]
    if found.full:
        out.append(_on_purpose(best, found.full, found.gpus))
    elif found.idle_gpus:
        out.append(idle_note(best.job, found.gpus, best.job.plan.tp, best.job.plan.pp, found.gpus - found.idle_gpus))
    if found.untried_partitions:
        out.append(
            f"{found.untried_partitions:,} plans were not tried with other partitions than the balanced one; by their"
            " bounds one of them might be faster then."
        )
    if found.unsure:
        out.append(
            f"{found.unsure:,} of the {found.fitting:,} plans that fit were not estimated and might be faster: their"
            " bound, which counts little but computing, is below the fastest estimate."
        )
    return tuple(out)


def name_of(job: Job) -> str:
    """A plan in words, as short as can be."""
    plan = job.plan
    words = [f"dp={plan.dp} tp={plan.tp} pp={plan.pp}"]
    words += [f"{plan.schedule}" + (f" chunks={plan.chunks}" if plan.chunks > 1 else "")] if plan.pp > 1 else []
    words += [f"blocks {in_runs(plan.partition)}"] if plan.partition and plan.pp > 1 else []
    words += [f"zero={plan.zero}"] if plan.dp > 1 else []
    words += [f"micro-batches of {job.microbatch_size}"]
    words += ["sequence parallel"] if job.scatters_sequence else []
    words += [f"recompute={plan.recompute}"] if plan.recompute != "none" else []
    return ", ".join(words)


def in_runs(sizes: Sequence[int]) -> str:
    """Blocks of the stages, first to last, equal neighbours together: 3 × 4 + 2 for (4, 4, 4, 2)."""
    runs = [(size, len(list(same))) for size, same in groupby(sizes)]
    return " + ".join(f"{count} × {size}" if count > 1 else f"{size}" for size, count in runs)


def _winner(best: Candidate, cluster: Cluster) -> str:
    shares = sorted(best.components.items(), key=lambda item: -item[1])
    most = ", ".join(f"{PART_WORDS[name]} {value / best.estimate:.1%}" for name, value in shares[:4] if value)
    return (
        f"Fastest: {name_of(best.job)}: {best.seconds:.3g} s a step, {best.mfu:.0%} of the peak of {cluster.name};"
        f" of its time {most}."
    )


def _loser(knob: str, best: Candidate, other: Candidate, cluster: Cluster) -> str:
    """Compared by the estimate, so that both sides are of one kind."""
    slower = other.estimate / best.estimate - 1
    changes = {name: other.components[name] - best.components[name] for name in best.components}
    part = max(changes, key=lambda name: changes[name]) if slower >= 0 else min(changes, key=lambda name: changes[name])
    before, after = best.components[part], other.components[part]
    also = f" (with {name_of(other.job)})"
    verdict = f"{slower:+.1%} a step" if abs(slower) >= 5e-4 else "as fast within 0.05 %"
    reason = _REASONS[part](other.job, cluster, other)
    return f"{_setting(knob, other.job)}: {verdict}: {PART_WORDS[part]} {before:.3g} → {after:.3g} s, {reason}{also}."


def _setting(knob: str, job: Job) -> str:
    if knob == "microbatch size":
        return f"{job.plan.microbatches} micro-batches of {job.microbatch_size}"
    if knob == "partition":
        blocks = [sum(kind_of(unit).block for unit in units) for units in stages(job)]
        return f"the balanced partition, blocks {in_runs(blocks)}"
    value = getattr(job.plan, knob)
    return f"{knob}={str(value).lower() if isinstance(value, bool) else value}"


def _compute(job: Job, cluster: Cluster, one: Candidate) -> str:
    if job.plan.pp > 1 and job.model.layers % (job.plan.pp * job.plan.chunks):
        return f"the layers do not divide by {job.plan.pp * job.plan.chunks}, so the largest stage has more to do"
    return (
        f"with micro-batches of {job.microbatch_size}, matrices cut {job.plan.tp} ways and"
        f" {job.plan.pp * job.plan.chunks} stages the busiest pipeline rank has more to do"
    )


def _recompute(job: Job, cluster: Cluster, one: Candidate) -> str:
    once = one.components["compute"] + one.components["tensor"]
    return f"{one.components['recompute'] / once:.0%} of the work in layers is done twice"


def _tensor(job: Job, cluster: Cluster, one: Candidate) -> str:
    where = "crosses nodes" if crosses_nodes(job, cluster) else "stays within a node"
    return f"a tensor group of {job.plan.tp} {where}"


def _pipeline(job: Job, cluster: Cluster, one: Candidate) -> str:
    return f"every micro-batch passes {job.plan.pp * job.plan.chunks - 1} boundaries, up and down"


def _data(job: Job, cluster: Cluster, one: Candidate) -> str:
    plan = job.plan
    if job.effective_zero == 3 and not plan.keep_gathered:
        return f"ZeRO-3 gathers parameters 2·m = {2 * plan.microbatches} times and reduces m times"
    if job.effective_zero == 2:
        return f"ZeRO-2 reduces gradients m = {plan.microbatches} times, with one reduction at a time in flight"
    if job.effective_zero == 1:
        return "one reduction a step, and a gather of the parameters that nothing hides"
    return "the last reductions of the step run under nothing"


def _bubble(job: Job, cluster: Cluster, one: Candidate) -> str:
    return f"{one.bubble:.1%} of the step with {job.plan.pp} pipeline ranks and {job.plan.microbatches} micro-batches"


def _optimizer(job: Job, cluster: Cluster, one: Candidate) -> str:
    return "each replica updates all it holds" if not job.effective_zero else "each rank updates its shard"


_REASONS: dict[str, Callable[[Job, Cluster, Candidate], str]] = {
    "compute": _compute, "recompute": _recompute, "tensor": _tensor, "pipeline": _pipeline, "data": _data,
    "bubble": _bubble, "optimizer": _optimizer,
}  # fmt: skip


def crosses_nodes(job: Job, cluster: Cluster) -> bool:
    """Whether any tensor group spans nodes."""
    return any(len({cluster.node_of(rank) for rank in group}) > 1 for group in mesh_of(job).groups("tp"))


def _on_purpose(best: Candidate, full: Candidate, gpus: int) -> str:
    idle = f"{best.idle_gpus} of {gpus} GPUs {'stands' if best.idle_gpus == 1 else 'stand'} idle, and it is faster so"
    using = "all" if not full.idle_gpus else f"{gpus - full.idle_gpus}"
    longer = full.estimate / best.estimate - 1
    return f"{idle}: the fastest plan that uses {using}, {name_of(full.job)}, takes {longer:.1%} longer."


def _dropped(count: int, category: str, over: int, example: Job, limit: int) -> str:
    return (
        f"{count:,} plans do not fit in {limit / 1e9:.3g} GB because of their {CATEGORY_WORDS[category]}; the nearest,"
        f" {name_of(example)}, needs {_amount(over)} more."
    )


def _amount(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"


def idle_note(job: Job, gpus: int, tp: int, pp: int, used: int | None = None) -> str:
    """What becomes of `gpus` GPUs under tp × pp, and the nearest plans of the job without idle ones.

    used: how many of them the batch can be shared among; default: all whole groups.
    """
    group = tp * pp
    work = used or gpus // group * group
    head = f"{gpus} GPUs with tp {tp} × pp {pp} = {group}: {work} work"
    if work == gpus:
        return f"{head}, none stands idle."
    idle = f"{gpus - work} {'stands' if gpus - work == 1 else 'stand'} idle"
    space = Space(job)
    pairs = {(shape.tp, shape.pp) for shape in shapes(space, gpus)}
    near = sorted(pairs, key=lambda pair: (_apart(pair[0], tp) + _apart(pair[1], pp), pair))[:3]
    all_used = ", ".join(f"tp {t} × pp {p} (dp {gpus // (t * p)})" for t, p in near) or "none"
    more = next((n for n in range(work + group, 4 * gpus, group) if not job.training.batch % (n // group)), None)
    multiples = " or ".join(str(n) for n in (work, more) if n)
    return f"{head}, {idle}; nearest that use all {gpus}: {all_used}; tp {tp} × pp {pp} fills {multiples} GPUs."


def _apart(a: int, b: int) -> float:
    """How many times larger the larger one is."""
    return max(a, b) / min(a, b)
