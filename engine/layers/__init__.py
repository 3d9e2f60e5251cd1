"""The layers of the model families and the collectives inside them: tensor, sequence and vocabulary parallel.

It may import `job`, `model`, `recording` and `communication`; whoever imports it loads torch. Start with `layers.py`,
what a family's layers must offer, then `gpt.py` and `tensor.py`.
"""
