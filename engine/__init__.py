"""The engine: a job is compiled to a program, real processes execute it, and a recording says what they did."""

from engine.home import HOME
from engine.program import schedules  # they add themselves to the registry, which whoever reads a job needs filled

__all__ = ["HOME", "schedules"]
