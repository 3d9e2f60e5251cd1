"""Two to six runs beside each other: which settings and numbers differ, and what that means in words.

It may import the rest of `analysis`, and takes runs by the protocol `recorded_run.RecordedRun`. Start with
`run_metrics.py`, the numbers, then `lines.py` and `text.py`.
"""
