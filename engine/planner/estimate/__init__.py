"""Seconds and bytes of very many plans at once, near enough to say which are worth a replay.

It may import `prediction` and below, and nothing of the search. Start with `estimate.py`, then `memory.py`.
"""
