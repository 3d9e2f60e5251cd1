"""The engine: a job is compiled to a program, real processes execute it, and a recording says what they did."""

from engine.home import HOME
from engine.model import families
from engine.program import schedules  # both add themselves to registries, which whoever reads a job needs filled

__all__ = ["HOME", "families", "schedules"]
