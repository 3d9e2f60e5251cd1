"""How the processes of a run are started in milliseconds, watched, ended and never left behind.

It imports no other room of the engine and knows nothing of training: a process is a function's name and what it is
given. Start with `launch.py`, then `supervisor.py`, which notices that one died, and `root_cause.py`, which says why.
"""
