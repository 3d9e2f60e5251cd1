"""What is trained: units, their parameters and shapes, which stage and bucket they are in, initial values, data.

It may import `job`; torch only where numbers are made. Start with `family.py`, which says what a model family is, then
`units.py` and `buckets.py`.
"""
