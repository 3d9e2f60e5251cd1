"""From a schedule written by hand to the program that the ranks run."""

from __future__ import annotations

from engine.checks import check_program
from engine.compile import compile_lanes
from engine.job import Job
from engine.passes.written import Written, written_lanes
from engine.program import Program


def schedule_program(job: Job, written: Written) -> Program:
    """The program of one step of `job` in the order of `written`: messages, units, gathers and reductions added.

    written: text, lanes or a function that makes one (`engine.passes.written`); where stages live and how many chunks
    there are stays the plan's. `job` must have passed `rules.check`. Raises `ValueError` for what cannot be read, and
    `ProgramError`, one of these, with the rank × time grid and what the marked action waits for, for an order that
    would not train the job.
    """
    program = compile_lanes(job, written_lanes(job, written))
    check_program(program, job)
    return program
