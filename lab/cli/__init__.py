"""The `lab` command line: options to a job, what each command does, and how it looks in a terminal.

It may import every room of the lab; nothing imports it but the dashboard, which shares its ports and its words for a
command. Start with `parser.py`, then `commands/run.py`.
"""
