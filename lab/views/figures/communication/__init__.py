"""Figures of what ranks send each other: bytes by axis, the ledger of a rank, a ring at work, replicas.

It may import `analysis`, the style, and the memory's shards. Start with `communication.py`.
"""
