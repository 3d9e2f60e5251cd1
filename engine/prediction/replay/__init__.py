"""When everything that a recording holds would happen on a described cluster.

Pure functions on arrays: it may import `job`, `program`, `recording` and `cluster`, and knows nothing of rehearsals or
processes. Start with `replay.py`, then `rows.py` (what is read) and `timing.py` (what waits for what).
"""
