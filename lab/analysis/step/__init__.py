"""One step of a recording: who computes and waits when, what for, and where its time went.

It may import the engine's recordings and replays, and nothing of the lab but its words. Start with `step_ops.py`, then
`idle.py`.
"""
