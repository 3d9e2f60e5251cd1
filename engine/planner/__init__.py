"""Of all legal plans of a model on so many GPUs: which fit, which is fastest, and why the others lose.

It may import `prediction` and everything below it, and starts no process. Start with `search.py`, then `plans.py`
(which plans there are), `result.py` (what is handed back) and `estimate` (how many seconds each takes).
"""
