"""A training step as data: for each pipeline rank one list of actions, compiled, checked, printed, walked.

It may import `job` and `model`, and no torch. Start with `kinds.py` and `program.py` (what an action is), then
`compile.py`, where a plan's schedule and passes make the lists.
"""
