"""Figures of memory: peaks by category, over time, what each ZeRO stage saves, and who keeps which part.

It may import `analysis` and the style. Start with `memory.py`, then `shards.py`.
"""
