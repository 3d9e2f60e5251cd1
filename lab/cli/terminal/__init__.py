"""Runs, simulations, plans and clusters as a terminal shows them; stdout stays for results.

It may import analysis, store and words, and is imported by commands alone. Start with `run.py`, the summary of a
run, then `tables.py`.
"""
