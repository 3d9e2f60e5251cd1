"""Messages between stages: every forward hands its activation on, every backward the gradient of its input.

Of a backward in two parts the input part does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.program import Action, Kind, Lanes


def add_messages(lanes: Lanes, home: Sequence[int], early: bool) -> Lanes:
    """Adds sends and receives to a stage-level order; neighbours on one rank need none.

    home: the lane of each stage.
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

    return tuple(_thread(lane, hop, early) for lane in lanes)


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
