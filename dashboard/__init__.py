"""The Streamlit dashboard: launch, watch and compare runs. It stands on `lab` alone; `lab dashboard` opens it.

Its rooms import from the ground up: page and data, launching, runs, live, app_pages and server. Start with `app.py`,
its frame, then a file of `app_pages`.
"""
