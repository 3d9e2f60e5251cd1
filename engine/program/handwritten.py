"""From a program or schedule written by hand to the program that the ranks run."""

from __future__ import annotations

from engine.job.job import Job
from engine.program.checks.check import check_program
from engine.program.compile import compile_job, compile_lanes
from engine.program.program import Program
from engine.program.schedules.text import Written, written_lanes


def checked_program(job: Job, by_hand: Program | Written | None = None) -> Program:
    """The program to run: what the plan compiles to, or what is written by hand, a program or a schedule.

    `job` must have passed `rules.check`. Raises as `schedule_program` does.
    """
    if by_hand is not None and not isinstance(by_hand, Program):
        return schedule_program(job, by_hand)
    chosen = by_hand or compile_job(job)
    check_program(chosen, job)
    return chosen


def schedule_program(job: Job, written: Written) -> Program:
    """The program of one step of `job` in the order of `written`: messages, units, gathers and reductions added.

    written: text, lanes or a function that makes one (`engine.program.schedules.text`); where stages live and how many
    chunks there are stays the plan's. `job` must have passed `rules.check`. Raises `ValueError` for what cannot be
    read, and `ProgramError`, one of these, with the rank × time grid and what the marked action waits for, for an order
    that would not train the job.
    """
    program = compile_lanes(job, written_lanes(job, written))
    check_program(program, job)
    return program
