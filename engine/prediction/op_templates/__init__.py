"""What each operation of a unit costs: found once by executing the unit on tensors without data, then kept.

It may import the layers and the recording; torch is loaded when a shape is first met. Start with `templates.py`, what
is kept, then `meta_templates.py`, how it is found.
"""
