"""Described hardware: devices, links and nodes, and how long computations and collectives take on it.

It may import `job` alone. Start with `cluster.py` and a file of `presets`, then `roofline.py` (computing) and
`collectives.py` (sending).
"""
