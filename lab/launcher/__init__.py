"""Runs that wait for their turn: a queue of run folders, and the process that carries them out one by one.

It may import `running` and `store`. Start with `queue.py`, what pages and notebooks call, then `worker.py`.
"""
