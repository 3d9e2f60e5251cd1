"""A run drawn while it goes on, by parts that a clock draws anew.

It may import every room but the pages and the server. Start with `live_run.py`, then `live_view.py`.
"""
