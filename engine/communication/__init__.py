"""What ranks send each other: every collective and message, counted and recorded where it is sent.

It may import `job`, `model`, `program`, `cluster` and `recording`. Start with `comm.py`, what a rank calls, then
`collective_bytes.py`, how bytes are counted.
"""
