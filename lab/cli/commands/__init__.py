"""What each `lab` command does: a function takes the parsed options and returns the exit status.

They may import every room of the lab, and do it when they are called, so that `lab --help` is quick. Start with
`run.py`.
"""
