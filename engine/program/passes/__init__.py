"""The passes of the compiler, a file for each subject: what a feature of the plan adds to the lists of actions.

A pass is a pure function from lists to lists, and may import `job`, `model` and the program's own types. Start with
`layers.py`, then `messages.py`; `engine.program.compile` says in which order they come.
"""
