"""One rank at work: it executes its list of actions on real tensors, and proves the result against one process.

It may import all rooms below it, down to `job`, but nothing that predicts; whoever imports it loads torch. Start with
`runtime.py` (what is done for each action), then `worker.py` (the life of a rank) and `session.py` (which processes).
"""
