"""Figures of two to six runs beside each other: losses, memory, idle time, bytes.

It may import the other rooms of figures, whose colours and words it shares. Start with `compared.py`.
"""
