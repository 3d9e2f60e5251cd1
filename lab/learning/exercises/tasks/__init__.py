"""The exercises, a file each: what is asked, hints, a solution, and the judge that tries an answer.

A file may import the engine, `lab.running` and the frame in `lab.learning.exercises`. Start with
`partition_layers.py`, the shortest way to see what an exercise needs.
"""
