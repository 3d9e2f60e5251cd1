"""What makes runs: real ones from check to summary, simulations, replays and searches for plans.

It may import `store`, `analysis` and the engine, and draws nothing. Start with `execute.py` (a job is checked, once)
and `execution.py` (a run from its first process to its end), then `simulation.py`.
"""
