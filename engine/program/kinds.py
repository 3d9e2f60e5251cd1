"""Kinds of actions: one record each, which checks, waits, runtime, predictions and pictures read.

A newcomer is one `Kind` in `KINDS` and its handler in `engine.execution.runtime.HANDLERS`; a pass puts it into
programs. What no record says nobody assumes: a kind that is not in `KINDS` raises `Unknown` wherever it is met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from engine.job.registry import Registry, plug_in, plugged_in

if TYPE_CHECKING:
    from engine.model.buckets import Bucket


class Sizes(Protocol):
    """Bytes on one pipeline rank in closed form, which `Kind.books` and `Kind.lands` choose from.

    kept, whole, left, by unit: activations that a forward keeps, that are there when its backward begins, and that the
    input part of a split backward leaves for the weight part.
    named: the buckets. parameter, gradient: bytes of one element. Whether the ZeRO stage shards gradients and
    parameters.
    """

    kept: Mapping[str, int]
    whole: Mapping[str, int]
    left: Mapping[str, int]
    named: Mapping[str, Bucket]
    parameter: int
    gradient: int
    shards_gradients: bool
    shards_parameters: bool

    def message(self, action: Any) -> int:
        """What a message (`engine.program.program.Action`) brings across its boundary between stages."""
        ...

    def opened(self, unit: str) -> Iterable[Booking]:
        """The whole gradients that a backward of `unit` brings, where only shards are kept and none is there yet."""
        ...

    def reduced(self, bucket: str) -> None:
        """The whole gradients of `bucket` are gone."""
        ...


Booking = tuple[str, int]
"""A category of the memory ledger, and bytes more (or fewer, if negative)."""
Books = Callable[[Sizes, Any], Iterable[Booking]]
"""What an action (`engine.program.program.Action`) of a kind books, given the sizes on its rank."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Kind(str):
    """What everybody has to know of a kind of action. It is its own name, with which it can be compared.

    name: in programs and in rows of recordings, and words: in legends.
    acts_on: a unit's computation for a micro-batch, a message between stages, a bucket, or the rank as a whole.
    letter: in grids of characters. is_pass: a unit's forward or backward, whole or in part, once for each micro-batch;
    in schedules its letter stands for it. work: of computations, what part of a step's time that is. role: which
    colour it has in pictures, one of `ROLES`; "" for that of its stream.

    How it is carried out: on the compute stream, which it keeps busy, if it has any work. moves: what it starts on a
    stream of its own, if anything: its half of a message, a collective, or a copy from one memory of the rank to
    another; whoever needs the result waits. stream: the communication stream, "" where that is the action's axis.
    partner: the kind at the other end of a message; sends, receives: which end it is.

    What it has to do with others. uses_parameters: of its unit, gathered. makes_gradient: of its unit's input.
    adds_gradient: to its unit's parameters. sums_norm: adds up loss and gradient norm of all ranks, once a step, when
    gradients are reduced. updates: the parameters of its bucket, or of all. ends: a step, when all is there that was
    under way.

    How it is foretold. cost: of a block's, in the units of schedules (`engine.program.dryrun`). rows: how the rehearsal
    finds what it records: each distinct unit executed once, the action executed alone, worked out from sizes, or
    nothing. books, lands: memory when it runs, and when what it started has been waited for.
    """

    name: str
    words: str
    acts_on: Literal["unit", "message", "bucket", "rank"]
    letter: str = ""
    is_pass: bool = False
    work: Literal["", "forward", "recompute", "backward", "step"] = ""
    role: str = ""
    moves: Literal["", "message", "collective", "copy"] = ""
    stream: str = ""
    partner: str = ""
    sends: bool = False
    receives: bool = False
    uses_parameters: bool = False
    makes_gradient: bool = False
    adds_gradient: bool = False
    sums_norm: bool = False
    updates: bool = False
    ends: bool = False
    cost: int = 0
    rows: Literal["unit", "alone", "sizes", ""] = ""
    books: Books = lambda sizes, action: ()
    lands: Books = lambda sizes, action: ()

    FORWARD: ClassVar[Kind]
    BACKWARD: ClassVar[Kind]
    BACKWARD_INPUT: ClassVar[Kind]
    BACKWARD_WEIGHT: ClassVar[Kind]
    RECOMPUTE: ClassVar[Kind]
    SEND_ACT: ClassVar[Kind]
    RECV_ACT: ClassVar[Kind]
    SEND_GRAD: ClassVar[Kind]
    RECV_GRAD: ClassVar[Kind]
    GATHER: ClassVar[Kind]
    RELEASE: ClassVar[Kind]
    REDUCE: ClassVar[Kind]
    WAIT: ClassVar[Kind]
    NORM: ClassVar[Kind]
    UPDATE: ClassVar[Kind]
    END: ClassVar[Kind]
    STEP: ClassVar[Kind]

    def __new__(cls, *, name: str, **_: Any) -> Kind:
        return super().__new__(cls, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name, plugged_in())

    @property
    def computes(self) -> bool:
        """Whether it keeps the compute stream busy."""
        return bool(self.work)

    @property
    def other_end(self) -> Kind:
        """Of a message."""
        return KINDS[self.partner]


def _named(name: str, plugins: tuple[str, ...]) -> Kind:
    """A kind from another process, of which this one may not have heard yet."""
    for module in plugins:
        plug_in(module)
    return KINDS[name]


ROLES = ("forward", "backward", "weight", "step")
"""What pictures tell apart by colour in what ranks do themselves; communication is told apart by its axis."""


def _of_message(sizes: Sizes, a: Any) -> Iterable[Booking]:
    yield "buffers", sizes.message(a)


def _message_used(sizes: Sizes, a: Any) -> Iterable[Booking]:
    yield "buffers", -sizes.message(a)


def _of_forward(sizes: Sizes, a: Any) -> Iterable[Booking]:
    yield "activations", sizes.kept[a.unit]


def _of_recompute(sizes: Sizes, a: Any) -> Iterable[Booking]:
    yield "activations", sizes.whole[a.unit] - sizes.kept[a.unit]


def _of_backward(sizes: Sizes, a: Any) -> Iterable[Booking]:
    yield from sizes.opened(a.unit)
    yield "activations", -sizes.whole[a.unit]


def _of_backward_input(sizes: Sizes, a: Any) -> Iterable[Booking]:
    yield "activations", sizes.left[a.unit] - sizes.whole[a.unit]


def _of_backward_weight(sizes: Sizes, a: Any) -> Iterable[Booking]:
    yield from sizes.opened(a.unit)
    yield "activations", -sizes.left[a.unit]


def _of_reduce(sizes: Sizes, a: Any) -> Iterable[Booking]:
    if sizes.shards_gradients and a.axis == sizes.named[a.unit].shard_axis:
        yield "buffers", sizes.named[a.unit].shard * sizes.gradient


def _reduced(sizes: Sizes, a: Any) -> Iterable[Booking]:
    if sizes.shards_gradients and a.axis == sizes.named[a.unit].shard_axis:
        sizes.reduced(a.unit)
        yield "buffers", -(sizes.named[a.unit].padded + sizes.named[a.unit].shard) * sizes.gradient


def _of_gather(sizes: Sizes, a: Any) -> Iterable[Booking]:
    if sizes.shards_parameters:
        yield "gathered", sizes.named[a.unit].padded * sizes.parameter


def _of_release(sizes: Sizes, a: Any) -> Iterable[Booking]:
    if sizes.shards_parameters:
        yield "gathered", -sizes.named[a.unit].padded * sizes.parameter


KINDS: Registry[Kind] = Registry("kind of action")

Kind.FORWARD = KINDS.add(Kind(
    name="forward", words="forward", acts_on="unit", letter="F", is_pass=True, work="forward", role="forward",
    uses_parameters=True, cost=1, rows="unit", books=_of_forward,
))  # fmt: skip
Kind.BACKWARD = KINDS.add(Kind(
    name="backward", words="backward", acts_on="unit", letter="B", is_pass=True, work="backward", role="backward",
    uses_parameters=True, makes_gradient=True, adds_gradient=True, cost=2, rows="unit", books=_of_backward,
))  # fmt: skip
Kind.BACKWARD_INPUT = KINDS.add(Kind(
    name="backward_input", words="backward, input part", acts_on="unit", letter="I", is_pass=True, work="backward",
    role="backward", uses_parameters=True, makes_gradient=True, cost=1, rows="unit", books=_of_backward_input,
))  # fmt: skip
Kind.BACKWARD_WEIGHT = KINDS.add(Kind(
    name="backward_weight", words="backward, weight part", acts_on="unit", letter="W", is_pass=True, work="backward",
    role="weight", adds_gradient=True, cost=1, rows="unit", books=_of_backward_weight,
))  # fmt: skip
Kind.RECOMPUTE = KINDS.add(Kind(
    name="recompute", words="forward again", acts_on="unit", letter="R", work="recompute", role="forward",
    uses_parameters=True, cost=1, rows="unit", books=_of_recompute,
))  # fmt: skip


def _message(name: str, words: str, partner: str, stream: str, sends: bool) -> Kind:
    return KINDS.add(Kind(
        name=name, words=words, acts_on="message", moves="message", stream=stream, partner=partner, sends=sends,
        receives=not sends, rows="sizes", books=_of_message, lands=_message_used,
    ))  # fmt: skip


Kind.SEND_ACT = _message("send_act", "sending an activation", "recv_act", "pp_act", sends=True)
Kind.RECV_ACT = _message("recv_act", "receiving an activation", "send_act", "pp_act", sends=False)
Kind.SEND_GRAD = _message("send_grad", "sending a gradient", "recv_grad", "pp_grad", sends=True)
Kind.RECV_GRAD = _message("recv_grad", "receiving a gradient", "send_grad", "pp_grad", sends=False)
Kind.GATHER = KINDS.add(Kind(
    name="gather", words="gathering parameters", acts_on="bucket", moves="collective", rows="sizes", books=_of_gather,
))  # fmt: skip
Kind.RELEASE = KINDS.add(Kind(
    name="release", words="releasing gathered parameters", acts_on="bucket", books=_of_release,
))  # fmt: skip
Kind.REDUCE = KINDS.add(Kind(
    name="reduce", words="reducing gradients", acts_on="bucket", moves="collective", rows="sizes", books=_of_reduce,
    lands=_reduced,
))  # fmt: skip
Kind.WAIT = KINDS.add(Kind(name="wait", words="waiting", acts_on="bucket"))
Kind.NORM = KINDS.add(Kind(
    name="norm", words="gradient norm", acts_on="rank", letter="N", work="step", role="step", sums_norm=True,
    rows="alone",
))  # fmt: skip
Kind.UPDATE = KINDS.add(Kind(
    name="update", words="optimizer update", acts_on="bucket", letter="U", work="step", role="step", updates=True,
    rows="alone",
))  # fmt: skip
Kind.END = KINDS.add(Kind(name="end", words="end of the step", acts_on="rank", ends=True))
# the norm and every update at once, as programs and recordings from before these were three have it
Kind.STEP = KINDS.add(Kind(
    name="step", words="optimizer step", acts_on="rank", letter="S", work="step", role="step", sums_norm=True,
    updates=True, rows="alone",
))  # fmt: skip


def names_where(true: Callable[[Kind], bool]) -> tuple[str, ...]:
    """Of the kinds that there are now; as recorded rows have them."""
    return tuple(kind.name for kind in KINDS if true(kind))


COLLECTIVE = "collective"
"""In recordings, the kind of a collective inside an action, which is no action of its own."""


def kind_of_row(name: str) -> Kind | None:
    """The kind of action that a recorded row says it is; None for a collective inside one. Raises `Unknown`."""
    return None if name == COLLECTIVE else KINDS[name]
