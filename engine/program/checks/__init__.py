"""Is a program right? Every layer once per micro-batch, messages matched, parameters present, no deadlock.

It may import `job`, `model` and the rest of the program, and runs nothing. Start with `check.py`, which tells the first
fault with the grid; the rules about a program as a whole are in `rules.py`.
"""
