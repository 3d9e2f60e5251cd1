"""The recording of a run that nobody made, put together from what each kind of operation costs.

It may import the program, the recording, the formulas, `op_templates` and `replay`. Start with `rehearse.py`, then
`script.py` (what a pipeline rank does) and `lane_rows.py` (its rows).
"""
