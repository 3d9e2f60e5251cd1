"""This machine measured: what its processes time, and the device and link that explain it.

It may import every room that a run needs, since it makes runs. Start with `calibrate.py`; what is timed is in
`worker.py`, how a cluster is fitted to it in `fitting.py`.
"""
