"""What the processes of a calibration do: time the engine's own rows, and gloo, on the machine they run on.

Every finding is handed to `engine.calibration.calibrate` as one event; see there for what is made of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F

from engine.calibration.engine_rows import (
    HEADS,
    SHAPES,
    Timed,
    between_rows,
    collective_events,
    lower_quartile,
    row_events,
    shaped,
)
from engine.calibration.fitting import NOTHING, Event
from engine.communication.comm import Group
from engine.communication.groups import meet
from engine.execution.malloc_tuning import keep_freed_memory
from engine.layers.run_backward import gradients
from engine.processes.worker_process import MemberContext
from engine.program.program import Action

PASSES = 3
PATIENCE = 0.1  # seconds spent on each thing that is timed, in each pass
PRODUCTS = (64, 128, 256, 512)  # widths of square matrices
HOST_STEPS = 12
STREAM = 8_000_000  # numbers in each of three arrays: 96 MB, more than a core's share of any cache
SIZES = {262_144: 15, 1_048_576: 10, 4_194_304: 5}  # bytes of a whole tensor: how often it is sent
LAYERS = ((64, 64, 2), (128, 128, 2), (256, 128, 2), (512, 128, 2))  # whose collectives are timed as they happen
LAYER_STEPS = 6


def measure(ctx: MemberContext) -> None:
    """Entry. ctx.payload holds rank, cores (how many ranks compute at once) and groups (sizes to communicate in)."""
    torch.set_num_threads(1)
    keep_freed_memory()
    rank = int(ctx.payload["rank"])
    ctx.status.action(b"calibrating")
    meet(ctx.rendezvous, rank, ctx.size)
    groups = [dist.new_group(list(range(size))) for size in ctx.payload["groups"]]
    dist.barrier()
    if rank < ctx.payload["cores"]:
        _device(ctx)
    dist.barrier()
    if rank < 2:
        _host(ctx, groups[0])
    dist.barrier()
    for size, group in zip(ctx.payload["groups"], groups, strict=True):
        if rank < size:
            if size <= HEADS:
                _layers(ctx, size, group)
            else:
                for nbytes, rounds in SIZES.items():
                    _collectives(ctx, size, group, nbytes, rounds)
        dist.barrier()
    if rank < 2:
        for nbytes, rounds in SIZES.items():
            _messages(ctx, nbytes, rounds)


def _device(ctx: MemberContext) -> None:
    """All that one core does, while the other cores do the same: they share memory and power.

    Everything is timed in several passes, of which the middle one counts: a core's speed varies from second to second
    with what its neighbours do, and a run meets the usual speed, not the best.
    """
    products = [(torch.float32, "fp32", width) for width in (NOTHING, *PRODUCTS)]
    products.append((torch.bfloat16, "bf16", PRODUCTS[-2]))
    tasks: list[tuple[Event, Callable[[], object]]] = [
        ({"kind": "product", "dtype": name, "width": width}, _product(width, dtype)) for dtype, name, width in products
    ]
    tasks.append(({"kind": "stream", "bytes": 3 * 4 * STREAM}, _stream()))
    jobs = [Timed(shaped(*shape), 0, (), _entering(ctx)) for shape in SHAPES]
    passes, steps = [], []
    for _ in range(PASSES):
        passes.append([_usual(work) for _, work in tasks])
        steps.append([ops for job in jobs for ops, _ in job.steps(PATIENCE)])
    for (event, _), seconds in zip(tasks, map(statistics.median, zip(*passes, strict=True)), strict=True):
        ctx.emit(event | {"seconds": seconds})
    for event in row_events(steps):
        ctx.emit(event)


def _entering(ctx: MemberContext) -> Callable[[Action], None]:
    """What a rank does before each action, see `engine.execution.worker`."""
    return lambda action: ctx.status.action(b"calibrating")


def _host(ctx: MemberContext, pair: dist.ProcessGroup) -> None:
    """The host's time between the rows of two ranks that shard their optimizer: computations, collectives and waits."""
    job = Timed(shaped(64, 64, 2, dp=2, zero=1), dist.get_rank(), [Group("dp", (0, 1), pair)], _entering(ctx))
    job.comm.on_wait, job.comm.on_resume = ctx.status.waiting, ctx.status.computing
    steps = [job.step() for _ in range(HOST_STEPS)]  # both ranks must make as many
    ctx.emit({"kind": "host", "seconds": between_rows(steps[1:])})


def _layers(ctx: MemberContext, size: int, group: dist.ProcessGroup) -> None:
    """The collectives of a tensor group that computes in between: threads sleep by then, ranks come at odd times."""
    members = Group("tp", tuple(range(size)), group)
    for shape in LAYERS:
        job = Timed(shaped(*shape, tp=size), dist.get_rank(), [members], _entering(ctx))
        job.comm.on_wait, job.comm.on_resume = ctx.status.waiting, ctx.status.computing
        steps = [job.step()[0] for _ in range(LAYER_STEPS)]
        for event in collective_events(steps[1:], size):
            ctx.emit(event)


def _product(width: int, dtype: torch.dtype) -> Callable[[], object]:
    """A linear layer forward and backward: three matrix products, dispatched as the engine's are."""
    x, weight = (torch.randn(width, width, dtype=dtype, requires_grad=True) for _ in range(2))
    upstream = torch.ones(width, width, dtype=dtype)
    return lambda: gradients(F.linear(x, weight), (x, weight), upstream)


def _stream() -> Callable[[], object]:
    a, b, out = (torch.ones(STREAM) for _ in range(3))
    return lambda: torch.add(a, b, out=out)


def _usual(work: Callable[[], object]) -> float:
    """Seconds of its core that `work` takes once it has warmed up; turns that other programs took do not count."""
    work()
    taken: list[float] = []
    end = time.perf_counter() + PATIENCE
    while time.perf_counter() < end or len(taken) < 3:
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return lower_quartile(taken)


def _collectives(ctx: MemberContext, size: int, group: dist.ProcessGroup, nbytes: int, rounds: int) -> None:
    """The two that gloo has, on a tensor of `nbytes`; a reduce-scatter is an all-reduce to it."""
    whole, shard = torch.zeros(nbytes // 4), torch.zeros(nbytes // 4 // size)

    def all_reduce() -> None:
        dist.all_reduce(whole, group=group, async_op=True).wait()

    def all_gather() -> None:
        dist.all_gather_single(whole, shard, group, async_op=True).wait()

    for work in (all_reduce, all_gather):
        seconds = _repeated(ctx, work, rounds)
        if dist.get_rank() == 0:
            ctx.emit({"kind": "traffic", "op": work.__name__, "ranks": size, "bytes": nbytes, "seconds": seconds})


def _messages(ctx: MemberContext, nbytes: int, rounds: int) -> None:
    """Ranks 0 and 1 send a tensor back and forth; a message takes half of that."""
    tensor, rank = torch.zeros(nbytes // 4), dist.get_rank()

    def there_and_back() -> None:
        for sender in (0, 1):
            (dist.send if rank == sender else dist.recv)(tensor, 1 - rank)

    seconds = _repeated(ctx, there_and_back, rounds) / 2
    if rank == 0:
        ctx.emit({"kind": "traffic", "op": "message", "ranks": 2, "bytes": nbytes, "seconds": seconds})


def _repeated(ctx: MemberContext, work: Callable[[], object], rounds: int) -> float:
    """Seconds of one of so many rounds, the same for all ranks; the first two warm up."""
    taken: list[float] = []
    for _ in range(rounds + 2):
        ctx.status.waiting()
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
        ctx.status.computing()
    return lower_quartile(taken[2:])
