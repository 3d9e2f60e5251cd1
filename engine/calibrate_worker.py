"""What the processes of a calibration do: time the engine's own layers, and gloo, on the machine they run on.

Every finding is handed to `engine.calibrate` as one event; see there for what is made of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._C._distributed_c10d import FileStore

from engine.comm import Comm, Group
from engine.costs import counting
from engine.fitting import NOTHING, Event
from engine.job import Job, Model
from engine.models.gpt import GPT
from engine.models.params import unit_params
from engine.parallel.tensor import TensorAxis
from engine.processes.member import MemberContext
from engine.recorder import Recorder

PASSES = 3
PATIENCE = 0.1  # seconds spent on each thing that is timed, in each pass
PRODUCTS = (64, 128, 256, 512)  # widths of square matrices
LAYERS = ((16, 8, 1), (32, 32, 2), (64, 64, 2), (64, 64, 4), (128, 128, 2), (256, 128, 2))  # hidden, sequence, batch
STREAM = 8_000_000  # numbers in each of three arrays: 96 MB, more than a core's share of any cache
SIZES = {64: 30, 65_536: 20, 1_048_576: 10, 4_194_304: 5}  # bytes of a whole tensor: how often it is sent


def measure(ctx: MemberContext) -> None:
    """Entry. ctx.payload holds rank, cores (how many ranks compute at once) and groups (sizes to communicate in)."""
    torch.set_num_threads(1)
    rank = int(ctx.payload["rank"])
    ctx.status.action(b"calibrating")
    dist.init_process_group("gloo", store=FileStore(ctx.rendezvous, ctx.size), rank=rank, world_size=ctx.size)
    groups = [dist.new_group(list(range(size))) for size in ctx.payload["groups"]]
    dist.barrier()
    if rank < ctx.payload["cores"]:
        _device(ctx)
    dist.barrier()
    for size, group in zip(ctx.payload["groups"], groups, strict=True):
        if rank < size:
            for nbytes, rounds in SIZES.items():
                _collectives(ctx, size, group, nbytes, rounds)
        dist.barrier()
    if rank < 2:
        for nbytes, rounds in SIZES.items():
            _messages(ctx, nbytes, rounds)


def _device(ctx: MemberContext) -> None:
    """All that one core does, while the other cores do the same: they share memory and power.

    Everything is timed in several passes, of which the best counts: other programs come in bursts.
    """
    products = [(torch.float32, "fp32", width) for width in (NOTHING, *PRODUCTS)]
    products.append((torch.bfloat16, "bf16", PRODUCTS[-2]))
    tasks: list[tuple[Event, Callable[[], object]]] = [
        ({"kind": "product", "dtype": name, "width": width}, _product(width, dtype)) for dtype, name, width in products
    ]
    tasks.append(({"kind": "stream", "bytes": 3 * 4 * STREAM}, _stream()))
    tasks += [_layer(*shape) for shape in LAYERS]
    passes = [[_usual(work) for _, work in tasks] for _ in range(PASSES)]
    for (event, _), seconds in zip(tasks, map(min, zip(*passes, strict=True)), strict=True):
        ctx.emit(event | {"seconds": seconds})


def _product(width: int, dtype: torch.dtype) -> Callable[[], object]:
    """A linear layer forward and backward: three matrix products, dispatched as the engine's are."""
    x, weight = (torch.randn(width, width, dtype=dtype, requires_grad=True) for _ in range(2))
    upstream = torch.ones(width, width, dtype=dtype)
    return lambda: torch.autograd.grad(F.linear(x, weight), (x, weight), upstream)


def _stream() -> Callable[[], object]:
    a, b, out = (torch.ones(STREAM) for _ in range(3))
    return lambda: torch.add(a, b, out=out)


def _layer(hidden: int, seq: int, batch: int) -> tuple[Event, Callable[[], object]]:
    """A transformer block of the engine, forward and backward, and what it costs."""
    job = Job(model=Model(hidden=hidden, heads=4, seq=seq))
    alone = Comm(0, "gloo", {"tp": Group("tp", (0,), None)}, Recorder(0))
    gpt = GPT(job, TensorAxis(alone, False), torch.device("cpu"), torch.float32)
    params = {p.name: torch.full(p.shape, 0.01, requires_grad=True) for p in unit_params(job.model, 1, "block0")}
    x = torch.randn(seq, batch, hidden, requires_grad=True)
    tokens, upstream = torch.zeros(seq + 1, batch, dtype=torch.long), torch.ones(seq, batch, hidden)

    def step() -> None:
        torch.autograd.grad(gpt.forward("block0", params, x, tokens), (x, *params.values()), upstream)

    with counting() as cost:
        step()
    event = {
        "kind": "layer", "flops": cost.flops, "matmuls": cost.matmuls, "matmul_bytes": cost.matmul_bytes,
        "touched_bytes": cost.touched_bytes, "operators": cost.operators,
        "batched_flops": cost.batched_flops, "batched_bytes": cost.batched_bytes,
    }  # fmt: skip
    return event, step


def _usual(work: Callable[[], object]) -> float:
    """Seconds of its core that `work` takes once it has warmed up; turns that other programs took do not count."""
    work()
    taken: list[float] = []
    end = time.perf_counter() + PATIENCE
    while time.perf_counter() < end or len(taken) < 3:
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return _typical(taken)


def _typical(taken: list[float]) -> float:
    """The lower quartile: what disturbs only ever makes it slower."""
    return statistics.quantiles(taken, n=4)[0]


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
    return _typical(taken[2:])
