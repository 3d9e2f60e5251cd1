"""Passes: pure functions that turn a schedule into a full program, one kind of parallelism each."""
