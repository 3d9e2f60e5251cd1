"""The mesh of ranks, a ball each on its axes, with lines for the groups that send.

It may import the style and the timeline's lanes. Start with `grid.py`, then `grid_ranks.py` and `grid_lines.py`.
"""
