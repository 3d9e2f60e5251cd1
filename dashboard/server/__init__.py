"""`lab dashboard` itself: a Streamlit server for this machine alone, and what it loads before the first visit.

It may import the rooms that it loads in advance. Start with `serve.py`; `asgi.py` is what
it serves, `door.py` who gets in, and `own_settings.py` keeps the settings of others out.
"""
