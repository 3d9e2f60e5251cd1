"""Ranks × time as a plotly figure, for reports and pictures; the interactive one is `lab.views.timeline`.

It may import `analysis` and the style. Start with `timeline.py`; `lanes.py` says which operation is drawn where.
"""
