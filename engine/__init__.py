"""The engine: a job is compiled to a program, real processes execute it, and a recording says what they did.

Its rooms import from the ground up: job and processes, cluster and model, program, recording, communication, layers,
execution, prediction, then planner and calibration; it imports nothing of `lab` or `dashboard`. Start with
`engine.job.job.Job`, then `engine.program.program` (what a rank does) and `engine.execution.runtime` (how it does it).
"""

from engine.home import HOME
from engine.model import families
from engine.program import schedules  # both add themselves to registries, which whoever reads a job needs filled

__all__ = ["HOME", "families", "schedules"]
