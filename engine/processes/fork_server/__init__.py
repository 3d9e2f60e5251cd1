"""The process with torch loaded that every run is forked from, so that one starts in milliseconds.

It may import the rest of `processes`, and is told by name what to load for those it will fork. Start with `client.py`,
what a session holds of it, then `server.py`, which runs in that process.
"""
