"""The pages, a script each, which Streamlit runs anew at every click.

They may import every other room of the dashboard, and nothing imports them. Start with `runs.py`, then `pipeline.py`.
"""
