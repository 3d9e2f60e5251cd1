"""Run folders: how they are written, found, read, noted, deleted, and what is wrong with a damaged one.

It may import `analysis`, for the summary, and the engine. Start with `folder.py` (what lies in a folder), then
`store.py` and `stored_run.py`, the run as data.
"""
