"""What all figures share: colours for every kind of sight, light and dark, clocks, curves, the chosen rank.

It imports no other figure. Start with `palette.py`, then `dual_theme.py`.
"""
