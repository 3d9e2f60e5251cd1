"""`lab dashboard` itself: a Streamlit server for this machine alone, and what it loads before the first visit.

It may import the rooms that it loads in advance. Start with `serve.py`; `dashboard/asgi.py` is what it serves.
"""
