"""Pipeline schedules: in which order does each pipeline rank run its forwards and backwards?

A schedule is one object (`engine.job.schedules.Schedule`); its order is a function (pipeline ranks p, micro-batches m,
chunks v) → one list of stage-level actions per rank. A file holds some and adds them to the registry; it is imported
below. Backwards of a stage come in micro-batch order in all of these, so that every schedule adds gradients up in the
same order and gives the same bits. They may import `job` and the program's own types. Start with `one_f_one_b.py`.
"""

from engine.program.schedules import one_f_one_b, zero_bubble  # in the order in which they are listed to users

__all__ = ["one_f_one_b", "zero_bubble"]
