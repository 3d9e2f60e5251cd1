"""What each process of a run is doing now: shared memory that it writes and anybody may read.

It imports no other room. Start with `board.py`; `hang.py` decides that nothing moves any more, from the board and from
what the system has on record of the processes (`activity.py`).
"""
