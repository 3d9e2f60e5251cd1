"""Figures in a notebook that know of each other: a rank chosen in one is marked in all.

It may import the figures, the canvas timeline and the facade. Start with `linked.py`, then `plot.py`.
"""
