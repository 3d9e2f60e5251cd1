"""The `lab` command. Exit status: 0 done, 1 the run failed or differs from one process, 2 refused, 130
interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.job import Job, JobRefused
from lab.options import Parser, add_job_options, job_of, parse
from lab.runs import Run, RunCorrupt, RunNotFound, StoreError, load, runs

if TYPE_CHECKING:
    from rich.console import Console

    from engine.program import Program

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
DEMO: dict[str, Any] = {"dp": 2, "tp": 2, "pp": 2, "zero": 1}
EXAMPLES = """examples:
  lab demo                                    see it all once: eight processes and a report
  lab run --dp 2 --tp 2 --pp 2 --zero 1       train under a plan of your own
  lab program --pp 4 --zero 3 --against "--zero 1"    what did ZeRO-3 add?
  lab show latest; lab report latest -o report.html
"""


def main(argv: list[str] | None = None) -> int:
    """Runs one command line; the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        args = parse(_parser(), argv)
        status: int = args.command(args)
        sys.stdout.flush()
        return status
    except (JobRefused, RunNotFound) as error:
        return _say(argv, "refused", str(error), REFUSED)
    except (StoreError, RunCorrupt) as error:
        return _say(argv, "failed", str(error), FAILED)
    except KeyboardInterrupt:
        return _say(argv, "stopped", "stopped.", INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has had enough; keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _say(argv: list[str], status: str, message: str, code: int, run_id: str | None = None) -> int:
    """The bad news: words on stderr and, with --json, one object on stdout."""
    print(f"lab: {message}", file=sys.stderr)
    if "--json" in argv:
        print(json.dumps({"run": run_id, "status": status, "error": message}))
    return code


def _parser() -> Parser:
    parser = Parser(
        prog="lab",
        description="Train small GPTs under any DP × TP × PP × ZeRO plan on real processes; see what happened.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=lambda _: _help(parser), parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)

    def command(name: str, do: Callable[[Namespace], int], words: str, json_words: str = "") -> Parser:
        added: Parser = commands.add_parser(
            name,
            help=words,
            usage=f"lab {name} {'RUN ' if name in ('show', 'report') else ''}[options]",
            description=words[0].upper() + words[1:] + ".",
        )
        added.set_defaults(command=do, parser=added)
        if json_words:
            added.add_argument("--json", action="store_true", help=json_words)
        return added

    run = command(
        "run", _run, "train under a plan and show what happened", "print the summary as one JSON object"
    )
    run.add_argument("--no-parity", action="store_true", help="do not compare with one process")
    run.add_argument("--program", metavar="FILE", help="run this program, written or edited by hand")
    add_job_options(run)
    listing = command("runs", _runs, "list the runs in the store", "print the list as one JSON object")
    listing.add_argument("--all", action="store_true", help="not only the newest 20")
    show = command("show", _show, "show the summary of a run again", "print the summary as one JSON object")
    program = command(
        "program", _program, "print the program that a plan compiles to", "print it as one JSON object"
    )
    program.add_argument("--rank", metavar="N", help="only what this rank runs")
    program.add_argument("--grid", action="store_true", help="draw ranks × time at unit costs instead")
    program.add_argument("--against", metavar="OPTIONS", help='compare with these options, as in "--zero 1"')
    add_job_options(program)
    report = command("report", _report, "write a run as one HTML file that needs nothing else")
    for parser_ in (show, report):
        parser_.add_argument(
            "run", metavar="RUN", help="a run's id, the beginning or end of one, latest, or -1, -2…"
        )
    report.add_argument("-o", "--output", metavar="FILE", default="report.html", help="default: report.html")
    command(
        "doctor",
        _doctor,
        "check that everything a run needs works here",
        "print the checks as one JSON object",
    )
    demo = command("demo", _demo, "run 2 × 2 × 2 ranks with ZeRO-1 on real text and write a report of it")
    demo.add_argument(
        "-o", "--output", metavar="FILE", default="demo-report.html", help="default: demo-report.html"
    )
    return parser


def _help(parser: Parser) -> int:
    parser.print_help()
    return OK


# -- running -------------------------------------------------------------------------------------------------


def _run(args: Namespace) -> int:
    from lab.execute import refuse

    job = job_of(args)
    refuse(job)
    program = _program_file(args.program, job) if args.program else None
    run, status = _execute(job, as_json=args.json, parity=not args.no_parity, program=program)
    if run is not None:
        _print(run, args.json)
    return status


def _execute(
    job: Job, *, as_json: bool, parity: bool = True, program: Program | None = None
) -> tuple[Run | None, int]:
    """Runs a job with its progress on stderr. A run that fails is reported here."""
    from engine.launch import RunFailed, warm

    warm()  # torch loads in a process of its own while this one loads the rest
    from lab.execute import run_job
    from lab.progress import Display

    argv = ["--json"] if as_json else []
    display = Display()
    try:
        with display:
            run = run_job(job, parity=parity, program=program, on_progress=display)
    except RunFailed as error:
        return None, _say(argv, "failed", f"run {display.run_id} failed: {error}", FAILED, display.run_id)
    except KeyboardInterrupt:
        words = f"run {display.run_id} was stopped; what it did so far is kept."
        return None, _say(argv, "stopped", words, INTERRUPTED, display.run_id)
    return run, FAILED if run.summary["parity"]["passed"] is False else OK


def _program_file(name: str, job: Job) -> Program:
    from engine.checks import ProgramError
    from engine.program import Program
    from lab.execute import checked_program

    try:
        return checked_program(job, Program.parse(Path(name).read_text(encoding="utf-8")))
    except OSError as error:
        raise JobRefused(f"the program file {name} cannot be read: {error.strerror}.") from error
    except (ProgramError, ValueError) as error:
        raise JobRefused(f"the program file {name} cannot be run: {error}") from error


def _demo(args: Namespace) -> int:
    from lab.execute import refuse

    job = Job.from_options(**DEMO)
    refuse(job)
    run, status = _execute(job, as_json=False)
    if run is None:
        return status
    _print(run, as_json=False)
    path = _write_report(run, args.output)
    console = _console()
    console.print(
        f"\nThe whole story is in [bold]{path}[/]: open it in a browser.", highlight=False, soft_wrap=True
    )
    console.print(
        "Look first at the timeline: the hatched gaps are the pipeline bubble. Then try", highlight=False
    )
    console.print("  lab run --dp 2 --tp 2 --pp 2 --zero 3 --microbatches 8", highlight=False)
    return status


def _report(args: Namespace) -> int:
    run = load(args.run)
    if run.status == "corrupt":
        raise RunCorrupt(f"run {run.id} is corrupt: {run.message}.")
    print(_write_report(run, args.output))
    return OK


def _write_report(run: Run, output: str) -> Path:
    try:
        return run.report(Path(output).absolute())
    except OSError as error:
        raise StoreError(f"the report {output} cannot be written: {error.strerror or error}.") from error


# -- looking -------------------------------------------------------------------------------------------------


def _console() -> Console:
    from rich.console import Console

    return Console()


def _print(run: Run, as_json: bool) -> None:
    if as_json:
        print(json.dumps(run.summary))
        return
    from lab.terminal import show

    show(run, _console())


def _show(args: Namespace) -> int:
    run = load(args.run)
    if run.status == "corrupt":
        return _say(
            ["--json"] * args.json, "corrupt", f"run {run.id} is corrupt: {run.message}.", FAILED, run.id
        )
    _print(run, args.json)
    return OK


def _runs(args: Namespace) -> int:
    found = runs()
    if args.json:
        print(json.dumps({"runs": [_listed(run) for run in found]}))
        return OK
    from lab.listing import print_runs

    print_runs(found, _console(), everything=args.all)
    return OK


def _listed(run: Run) -> dict[str, Any]:
    return {
        "run": run.id,
        "status": run.status,
        "message": run.message,
        "created": run.info.created,
        **run.digest,
    }


def _program(args: Namespace) -> int:
    from lab.program_text import print_program

    print_program(args, job_of(args), _console())
    return OK


def _doctor(args: Namespace) -> int:
    from lab.doctor import checks
    from lab.listing import print_check

    console, made = _console(), []
    for check in checks():
        made.append(check)
        if not args.json:
            print_check(check, console)
    if args.json:
        rows = [{"name": c.name, "ok": c.ok, "found": c.found, "advice": c.advice} for c in made]
        print(json.dumps({"ok": all(check.ok for check in made), "checks": rows}))
    return OK if all(check.ok for check in made) else FAILED


if __name__ == "__main__":
    sys.exit(main())
