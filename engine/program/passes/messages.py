"""Messages between stages: every forward hands its activation on, every backward the gradient of its input.

Of a backward in two parts the input part does.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence

from engine.program.kinds import Kind
from engine.program.program import Action, Lanes


def add_messages(lanes: Lanes, home: Sequence[int], early: bool) -> Lanes:
    """Adds sends and receives to a stage-level order; neighbours on one rank need none.

    home: the pipeline rank of each stage.
    early: post a receive one computation ahead, so that the transfer runs under it.
    """

    def hop(action: Action) -> tuple[Action | None, Action | None]:
        """(the receive before, the send after) a stage-level action."""
        s, k = action.stage, action.microbatch
        assert s is not None
        if action.kind is Kind.BACKWARD_WEIGHT:
            return None, None
        ahead, behind = (s - 1, s + 1) if action.kind is Kind.FORWARD else (s + 1, s - 1)
        recv, send = (Kind.RECV_ACT, Kind.SEND_ACT) if action.kind is Kind.FORWARD else (Kind.RECV_GRAD, Kind.SEND_GRAD)
        comes = 0 <= ahead < len(home) and home[ahead] != home[s]
        leaves = 0 <= behind < len(home) and home[behind] != home[s]
        before = Action(recv, microbatch=k, stage=s, peer=home[ahead]) if comes else None
        after = Action(send, microbatch=k, stage=s, peer=home[behind]) if leaves else None
        return before, after

    return _in_sending_order([_thread(lane, hop, early) for lane in lanes])


Hop = Callable[[Action], tuple[Action | None, Action | None]]


def _thread(lane: tuple[Action, ...], hop: Hop, early: bool) -> tuple[Action, ...]:
    """A lane with the messages of its actions around them."""
    hops = [hop(action) for action in lane]
    out: list[Action] = []
    for i, action in enumerate(lane):
        if not early or i == 0:
            out += filter(None, [hops[i][0]])
        if early and i + 1 < len(lane):
            out += filter(None, [hops[i + 1][0]])
        out += filter(None, [action, hops[i][1]])
    return tuple(out)


def _in_sending_order(lanes: Sequence[Sequence[Action]]) -> Lanes:
    """Posts receives in the order of their sends, by which alone NCCL tells messages between two ranks apart.

    Only where a rank uses messages in another order than they are made is a receive posted before it is needed.
    """
    lines: dict[tuple[Kind, int | None, int], deque[Action]] = defaultdict(deque)  # (kind, to, from) → receives to post
    sent: set[tuple[int | None, Action]] = set()
    for pp_rank, lane in enumerate(lanes):
        for a in lane:
            if a.kind.sends and a.stage is not None:
                stage = a.stage + (1 if a.kind is Kind.SEND_ACT else -1)
                receive = Action(a.kind.other_end, microbatch=a.microbatch, stage=stage, peer=pp_rank)
                lines[receive.kind, a.peer, pp_rank].append(receive)
                sent.add((a.peer, receive))

    def post(pp_rank: int, lane: Sequence[Action]) -> Iterator[Action]:
        posted: set[Action] = set()
        for a in lane:
            if (pp_rank, a) not in sent:  # no receive, or one that the checks will refuse
                yield a
                continue
            while a not in posted:
                assert a.peer is not None
                posted.add(first := lines[a.kind, pp_rank, a.peer].popleft())
                yield first

    return tuple(tuple(post(pp_rank, lane)) for pp_rank, lane in enumerate(lanes))
