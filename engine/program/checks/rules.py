"""The rules a program must obey to train its job: generators of complaints, of which each relies on those before.

Different from the compiled program is not wrong: any order of the schedule, gathers hoisted or late, reductions
delayed, receives posted early and extra waits all pass, as long as every value that is used is the right one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from engine.model.units import compute_units, needs
from engine.program.checks.context import Case, Complaint
from engine.program.checks.recompute import recomputations
from engine.program.kinds import KINDS, Kind
from engine.program.program import Action


def _coverage(case: Case) -> Iterator[Complaint]:
    """Each unit forward and backward, whole or in two parts, once per micro-batch, and one norm on each rank."""
    for pp_rank, i, a in case.program:
        if a.kind.is_pass and case.passes.setdefault((a.kind, a.unit, a.microbatch), (pp_rank, i)) != (pp_rank, i):
            yield pp_rank, i, "this has been done already; each layer runs once per micro-batch."
    kinds = [kind for kind in KINDS if kind.is_pass]
    for unit in compute_units(case.job.model):
        home = case.pp_rank_of[case.stage_of[unit]]
        for k in range(case.job.plan.microbatches):
            parts = {kind for kind in kinds if (kind, unit, k) in case.passes}
            split = parts & {Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT}
            if Kind.BACKWARD in parts and split:
                place = case.passes[min(split, key=str), unit, k]
                yield (
                    *place,
                    "this has a backward already: a backward is one whole or two parts, an input and a weight.",
                )
            for kind in _wanted(bool(split)):
                if kind not in parts:
                    yield home, len(case.program.lanes[home]), f"{kind} {unit} mb{k} is missing."
    for pp_rank, actions in enumerate(case.program.lanes):
        if sum(a.kind.sums_norm for a in actions) != 1:
            yield pp_rank, len(actions), "a lane has exactly one norm."


def _wanted(split: bool) -> tuple[Kind, ...]:
    return (Kind.FORWARD, *((Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT) if split else (Kind.BACKWARD,)))


def _order(case: Case) -> Iterator[Complaint]:
    """Within a lane a unit follows its predecessor, its backward follows its forward, and the norm ends the work."""
    home = {unit: case.pp_rank_of[s] for unit, s in case.stage_of.items()}
    pairs = [(a, b) for a, b in pairwise(home) if home[a] == home[b]]
    before, after = {b: a for a, b in pairs}, dict(pairs)
    norms = [case.norm(pp_rank) for pp_rank in range(case.pp)]
    for pp_rank, i, a in case.program:
        if i > norms[pp_rank] and (a.kind.is_pass or a.kind.sends or a.kind.receives):
            norm = case.program.lanes[pp_rank][norms[pp_rank]].kind
            yield pp_rank, i, f"the {norm} comes before it; it is of all ranks, after all computations and messages."
        if a.kind.is_pass:
            for kind, unit in _predecessors(case, a, before, after):
                first = case.passes[kind, unit, a.microbatch]
                if first[1] > i:
                    yield pp_rank, i, f"it needs {kind} {unit} mb{a.microbatch} first{case.ready(first)}."


def _predecessors(case: Case, a: Action, before: dict[str, str], after: dict[str, str]) -> Iterator[tuple[Kind, str]]:
    """What must have run earlier on the same rank; before and after: each unit's neighbours on that rank."""
    if a.kind.makes_gradient:
        yield Kind.FORWARD, a.unit
        if a.unit in after:
            yield case.gradient(after[a.unit], a.microbatch), after[a.unit]
    elif a.kind is Kind.BACKWARD_WEIGHT:
        yield Kind.BACKWARD_INPUT, a.unit
    elif a.unit in before:
        yield Kind.FORWARD, before[a.unit]


def _messages(case: Case) -> Iterator[Complaint]:
    """Each message is sent and received exactly once, after it was made and before it is used."""
    for pp_rank, i, a in case.program:
        if (a.kind.sends or a.kind.receives) and a.stage is not None and a.microbatch is not None:
            key = (a.kind, a.stage, a.microbatch)
            if case.messages.setdefault(key, (pp_rank, i)) != (pp_rank, i):
                yield pp_rank, i, f"this message has been {'sent' if a.kind.sends else 'received'} already."
    for low, high in pairwise(range(len(case.stages))):
        if case.pp_rank_of[low] != case.pp_rank_of[high]:
            for k in range(case.job.plan.microbatches):
                yield from _hop(case, Kind.SEND_ACT, low, high, k)
                yield from _hop(case, Kind.SEND_GRAD, high, low, k)


def _hop(case: Case, send: Kind, source: int, target: int, k: int) -> Iterator[Complaint]:
    """One message from stage to stage."""
    end = -1 if send is Kind.SEND_ACT else 0
    makes, unit = case.stages[source][end], case.stages[target][-1 - end]
    does, uses = (Kind.FORWARD if end else case.gradient(u, k) for u in (makes, unit))
    made, used = case.passes[does, makes, k], case.passes[uses, unit, k]
    sent, received = case.messages.get((send, source, k)), case.messages.get((send.other_end, target, k))
    if sent is None and received is None:
        what = f"{send} mb{k} stage{source} and {send.other_end} mb{k} stage{target}"
        yield *used, f"what it works on is on pipeline {made[0]}{case.ready(made)}: it needs {what}."
    elif sent is None and received is not None:
        yield *received, f"pipeline {made[0]} never sends it."
    elif received is None and sent is not None:
        yield *sent, "nobody receives it."
    elif sent is not None and received is not None:
        if sent[1] < made[1]:
            yield *sent, f"it needs {does} {makes} mb{k} first{case.ready(made)}."
        if received[1] > used[1]:
            yield *used, f"it needs {send.other_end} mb{k} stage{target} first{case.ready(sent)}."


def _posting_order(case: Case) -> Iterator[Complaint]:
    """Receives are posted in the order of the sends: NCCL knows messages between two ranks by nothing else."""
    sends: dict[tuple[Kind, int, int | None], list[Action]] = defaultdict(list)
    for pp_rank, _, a in case.program:
        if a.kind.sends:
            sends[a.kind, pp_rank, a.peer].append(a)
    place: Counter[tuple[Kind, int, int | None]] = Counter()
    for pp_rank, i, a in case.program:
        if a.kind.receives and a.peer is not None and a.stage is not None:
            line = (a.kind.other_end, a.peer, pp_rank)
            first, source = sends[line][place[line]], a.stage + (-1 if a.kind is Kind.RECV_ACT else 1)
            if (first.stage, first.microbatch) != (source, a.microbatch):
                yield pp_rank, i, f"pipeline {a.peer} sends {first} first: post receives in the order of their sends."
            place[line] += 1


def _deadlock(case: Case) -> Iterator[Complaint]:
    for stuck in case.walk.stuck:
        yield stuck.pp_rank, stuck.position, f"it waits for ever for {stuck.needs}."


def _updates(case: Case) -> Iterator[Complaint]:
    """Each bucket is updated once, after the norm, and then the lane ends; an older program's step does all of that."""
    for pp_rank, lane in enumerate(case.program.lanes):
        norm, done = case.norm(pp_rank), set[str]()
        whole = lane[norm].kind.updates
        for i, a in enumerate(lane):
            if a.kind.updates and i != norm:
                if whole or a.unit in done:
                    yield pp_rank, i, f"{a.unit} has been updated already in this step."
                if i < norm:
                    yield pp_rank, i, "it needs norm first: gradients are clipped by the norm of all of them."
                done.add(a.unit)
            elif a.kind.ends and i < len(lane) - 1:
                yield pp_rank, i, "the end is a lane's last action."
        for name in () if whole else case.buckets[pp_rank]:
            if name not in done:
                yield pp_rank, len(lane), f"update {name} is missing."
        if not whole and not lane[-1].kind.ends:
            yield pp_rank, len(lane), "a lane ends with end, when all is there that is under way."


def _parameters(case: Case) -> Iterator[Complaint]:
    """ZeRO-3: a unit computes only between gather and release. ZeRO-1 and 2: updated shards are gathered again."""
    for pp_rank in range(case.pp):
        if case.zero == 3:
            yield from _gathered_around_use(case, pp_rank)
        elif case.zero:
            yield from _gathered_after_update(case, pp_rank)


def _gathered_around_use(case: Case, pp_rank: int) -> Iterator[Complaint]:
    lane = case.program.lanes[pp_rank]
    present: dict[str, bool] = {}  # what is gathered → whether it was used since
    for i, a in enumerate(lane):
        if a.kind is Kind.GATHER:
            if a.unit in present:
                yield pp_rank, i, f"{a.unit} is gathered already: release it first."
            present[a.unit] = False
        elif a.kind is Kind.RELEASE:
            if a.unit not in present:
                yield pp_rank, i, f"{a.unit} is not gathered, so there is nothing to release."
            elif not present.pop(a.unit):
                yield pp_rank, i, f"nothing has used {a.unit} since its gather, which may still be under way."
        for name in needs(case.job.model, a.unit) if a.kind.uses_parameters else ():
            if name not in present:
                late = next((j for j in range(i, len(lane)) if (lane[j].kind, lane[j].unit) == (Kind.GATHER, name)), -1)
                yield pp_rank, i, f"the parameters of {name} are not gathered{case.ready((pp_rank, late))}."
            present[name] = True
    for name in present:
        wrong = f"{name} is still gathered: release it before the step ends, or it is never sharded again."
        yield pp_rank, len(lane), wrong


def _gathered_after_update(case: Case, pp_rank: int) -> Iterator[Complaint]:
    lane = case.program.lanes[pp_rank]
    gathered, updated = set[str](), set[str]()
    for i, a in enumerate(lane):
        if a.kind.updates:
            updated |= {a.unit} if a.unit else set(case.buckets[pp_rank])
        elif a.kind is Kind.GATHER:
            if a.unit not in updated:
                yield pp_rank, i, f"under ZeRO-{case.zero} parameters change in their update and are gathered after it."
            if a.unit in gathered:
                yield pp_rank, i, f"{a.unit} has been gathered already since its update."
            gathered.add(a.unit)
    for name, bucket in case.named[pp_rank].items():
        if name not in gathered:
            yield (
                pp_rank,
                len(lane),
                f"each rank has updated its shard only: gather {name} all_gather @{bucket.shard_axis} is missing.",
            )


def _reductions(case: Case) -> Iterator[Complaint]:
    """Each gradient is summed over each axis exactly once, when it is complete, one axis after the other."""
    for pp_rank, lane in enumerate(case.program.lanes):
        wanted: dict[str, dict[Action, None]] = defaultdict(dict)  # ordered sets
        for a in case.compiled.lanes[pp_rank]:
            if a.kind is Kind.REDUCE:
                wanted[a.unit][a] = None
        yield from _reduced_once(case, pp_rank, wanted)
        events: dict[str, list[tuple[int, Action]]] = {name: [] for name in case.buckets[pp_rank]}
        for i, a in enumerate(lane):
            if a.kind.adds_gradient:
                for name in dict.fromkeys(case.homes[pp_rank][owner] for owner in needs(case.job.model, a.unit)):
                    events[name].append((i, a))
            elif a.kind in (Kind.REDUCE, Kind.WAIT):
                events[a.unit].append((i, a))
        for name, story in events.items():
            yield from _reduced_when_complete(case, pp_rank, name, story, wanted[name])


def _reduced_once(case: Case, pp_rank: int, wanted: dict[str, dict[Action, None]]) -> Iterator[Complaint]:
    at, done = case.norm(pp_rank), set[Action]()
    norm = case.program.lanes[pp_rank][at].kind
    for i, a in enumerate(case.program.lanes[pp_rank]):
        if a.kind is Kind.REDUCE:
            key = _sum(a)
            if key not in wanted[a.unit]:
                yield (
                    pp_rank,
                    i,
                    f"no such sum is needed; for {a.unit} it is: {'; '.join(map(str, wanted[a.unit])) or 'none'}.",
                )
            if key in done:
                yield pp_rank, i, "this has been reduced already, and would count double."
            if i > at:
                yield pp_rank, i, f"the {norm} has used these gradients already: reduce them before the {norm}."
            done.add(key)
    for key in (key for keys in wanted.values() for key in keys if key not in done):
        which = f"{key.unit} mb{key.microbatch}" if key.microbatch is not None else key.unit
        yield (
            pp_rank,
            at,
            f"the gradients of {which} are not reduced over {key.axis} before the {norm}: it needs {key} first.",
        )


def _sum(a: Action) -> Action:
    """A reduction without the fields that say nothing about it."""
    return Action(a.kind, a.unit, a.microbatch, axis=a.axis, op=a.op)


def _reduced_when_complete(
    case: Case, pp_rank: int, name: str, story: list[tuple[int, Action]], wanted: dict[Action, None]
) -> Iterator[Complaint]:
    """One bucket's story: backwards fill its buffer, reductions sum it in place or (ZeRO-2 and 3) empty it."""
    bucket = case.named[pp_rank][name]
    shards, axes, along = case.zero >= 2, (*bucket.sum_axes, "tie"), bucket.shard_axis
    last = {a.microbatch if shards else None: (i, a) for i, a in story if a.kind.adds_gradient}
    where = {_sum(a): i for i, a in story if a.kind is Kind.REDUCE}
    filled, flying = False, set[str]()
    for i, a in story:
        if a.kind.adds_gradient:
            filled = True
            flying.discard(along)  # a backward waits for it
        elif a.kind is Kind.WAIT:
            flying.discard(a.axis)
        else:
            late, backward = last.get(a.microbatch, (-1, a))
            if i < late:
                ready = case.ready((pp_rank, late))
                yield pp_rank, i, f"these gradients are not complete: it needs {backward} first{ready}."
            for first in _sums_before(a, wanted, axes):
                if i < where[first]:
                    yield pp_rank, i, f"it needs {first} first{case.ready((pp_rank, where[first]))}."
                elif first.axis in flying:
                    yield pp_rank, i, f"{first} may still be under way: it needs wait {name} @{first.axis} first."
            if shards and a.axis == along and not filled:
                yield (
                    pp_rank,
                    i,
                    f"the reduction before took these gradients along: {name} has one buffer under ZeRO-2 and 3.",
                )
            filled = filled and a.axis != along
            flying.add(a.axis)


def _sums_before(a: Action, wanted: dict[Action, None], axes: Sequence[str]) -> list[Action]:
    """The reductions over earlier axes whose result reduction `a` sums on: its micro-batch's, or all of them.

    axes: along which its bucket is summed, in order.
    """
    earlier = axes[: axes.index(a.axis)]
    if a.microbatch is None:
        return [first for first in wanted if first.axis in earlier]
    keys = (Action(a.kind, a.unit, a.microbatch, axis=axis, op="all_reduce") for axis in earlier)
    return [key for key in keys if key in wanted]


Rule = Callable[[Case], Iterator[Complaint]]
RULES: tuple[Rule, ...] = (
    _coverage,
    recomputations,
    _order,
    _messages,
    _deadlock,
    _posting_order,
    _parameters,
    _reductions,
    _updates,
)
