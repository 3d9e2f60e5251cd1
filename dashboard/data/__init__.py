"""What pages read of the store and what is computed of it, each once for all windows.

It may import the lab, and no room of the dashboard. Start with `cached_runs.py`.
"""
