"""What every page shares: its address as state, ways to other pages, errors in words, drawing of figures.

It may import the lab, and no room of the dashboard. Start with `query_params.py`, then `render.py`.
"""
