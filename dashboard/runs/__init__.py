"""Runs on pages: the table of them, what can be done with those chosen, the head of a run's pages, comparisons.

It may import `launching`, `page` and `data`. Start with `runs_table.py`, then `run_header.py`.
"""
