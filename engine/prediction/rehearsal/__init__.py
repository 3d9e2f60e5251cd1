"""The recording of a run that nobody made: each kind of unit is executed once, on tensors without data.

It may import the program, the layers, the recording and the formulas; torch is loaded when a shape is first met. Start
with `rehearse.py`, which puts the rows of a rank together.
"""
