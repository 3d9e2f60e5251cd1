"""What is written down of a run: a row for each operation, memory by category, FLOPs, and the files they are in.

It may import `program` and below. Start with `tables.py`, which says every column; ranks write through `recorder.py`
and `ledger.py`, and whoever reads a folder uses `parquet.py` and `live_files.py`.
"""
