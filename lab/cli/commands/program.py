"""`lab program`: the program of a plan as text, as a picture, or as its difference from another plan's."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace

from rich.console import Console
from rich.text import Text

from engine.job import rules
from engine.job.errors import UserError, told
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.program.checks.check import grid
from engine.program.compile import program_of
from engine.program.program import Program
from lab.cli.options import Parser, add_job_options, job_of, parse

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def print_program(args: Namespace, job: Job, console: Console) -> None:
    """Raises `UserError` for a job, a rank or a comparison that makes no sense."""
    rules.check(job)
    program = program_of(job)
    chosen = _pp_rank(args.rank, job)
    for name in ("against", "grid"):
        if args.rank is not None and getattr(args, name):
            raise UserError(f"--rank shows one rank and --{name} all of them: leave one of the two out.")
    if args.against is not None:
        _print_difference(_other(args.against, args.job, job), program, console, args.json)
    elif args.json:
        lanes = program.lanes if chosen is None else (program.lanes[chosen],)
        print(json.dumps({"lanes": [[str(action) for action in lane] for lane in lanes]}))
    elif args.grid:
        print(grid(program))
    else:
        sys.stdout.write(_heading(args.rank, job) + program.text(chosen))


def _pp_rank(rank: str | None, job: Job) -> int | None:
    if rank is None:
        return None
    if not rank.isdecimal() or int(rank) >= job.world_size:
        raise UserError(f"rank={rank} is not in this job: use 0 to {job.world_size - 1}.")
    return mesh_of(job).coordinate(int(rank)).pp


def _heading(rank: str | None, job: Job) -> str:
    """Comments that the reader of programs skips."""
    if rank is None:
        sharing = job.world_size // job.plan.pp
        return f"# each pipeline lane is run by {sharing} rank{'s' if sharing > 1 else ''}\n"
    return f"# rank {rank} of {job.world_size}: {mesh_of(job).coordinate(int(rank))}\n"


def _other(options: str, job_file: str | None, job: Job) -> Job:
    """The job that `--against` describes: this job with some options changed."""
    parser = Parser(prog="lab program --against")
    parser.set_defaults(parser=parser)
    add_job_options(parser)
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise UserError(f"--against {told(options)} cannot be read: {error}.") from error
    other = job_of(parse(parser, words), base=job)
    rules.check(other)
    return other


def _print_difference(other: Job, program: Program, console: Console, as_json: bool) -> None:
    """What this plan adds (+) to the other one and drops (-) from it."""
    difference = program_of(other).diff(program)
    if as_json:
        print(json.dumps({"diff": difference.splitlines()}))
    elif not difference:
        print("both plans compile to the same program")
    elif console.is_terminal:
        for line in difference.splitlines():
            console.print(Text(line, style=_COLOURS.get(line[0], "")), soft_wrap=True)
    else:
        print(difference)
