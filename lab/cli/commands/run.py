"""What each `lab` command does. Every function takes the parsed options and returns the exit status."""

from __future__ import annotations

import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.job.errors import JobRefused, UserError
from engine.job.job import Job
from engine.plain_file import GROWN, read_text
from engine.whole_file import check_writable
from lab.cli.open_runs import opened_runs
from lab.cli.options import given, job_of, number, whole_number
from lab.facade import Run
from lab.facade import runs as all_runs
from lab.running.experiments import DEMO
from lab.store.stored_run import Store, StoreError

if TYPE_CHECKING:
    from rich.console import Console

    from engine.program.program import Program
    from lab.running.execute import CheckedJob

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130


def report_failure(status: str, message: str, code: int, *, as_json: bool, run_id: str | None = None) -> int:
    """The bad news: words on stderr and, if asked for, one object on stdout. Returns the exit status."""
    print(f"lab: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"run": run_id, "status": status, "error": message}))
    return code


# -- running -------------------------------------------------------------------------------------------------


def run(args: Namespace) -> int:
    from lab.running.execute import checked

    job = job_of(args)
    with from_file(args) as by_hand:
        wished = checked(job, parity=not args.no_parity, by_hand=by_hand)
    run, status = _execute(wished, as_json=args.json)
    if run is not None:
        print_run(run, args.json)
    return status


def _execute(wished: CheckedJob, *, as_json: bool) -> tuple[Run | None, int]:
    """Runs a job with its progress on stderr. A run that fails is reported here."""
    from engine.execution.session import PRELOAD
    from engine.processes.launch import RunFailed, warm

    warm(PRELOAD)  # torch loads in a process of its own while this one loads the rest
    from lab.cli.terminal.progress import Display
    from lab.running.execute import execute

    display = Display()
    try:
        with display:
            run = Run.of(execute(wished, on_progress=display))
    except RunFailed as error:
        log = Store().folder(display.run_id or "") / "log.txt"
        words = f"run {display.run_id} failed: {error}\nWhat its processes printed is in {log}"
        return None, report_failure("failed", words, FAILED, as_json=as_json, run_id=display.run_id)
    except KeyboardInterrupt:
        if display.run_id is None:
            raise
        words = f"run {display.run_id} was stopped; what it did so far is kept."
        return None, report_failure("stopped", words, INTERRUPTED, as_json=as_json, run_id=display.run_id)
    return run, FAILED if run.proof.badge.passed is False else OK


@contextmanager
def from_file(args: Namespace) -> Iterator[Program | str | None]:
    """The program, or the text of a schedule, in a file that an option names, for the block to check.

    Raises `UserError`, which names the file, for what cannot be read and for what the block cannot run.
    """
    if args.program and args.schedule_file:
        raise UserError("--program and --schedule-file both say what to run: leave one of the two out.")
    kind, name = ("schedule", args.schedule_file) if args.schedule_file else ("program", args.program)
    if not name:
        yield None
        return
    from engine.program.program import Program

    try:
        text = read_text(Path(name), GROWN)
        yield Program.parse(text) if kind == "program" else text
    except JobRefused:
        raise
    except OSError as error:
        raise UserError(f"the {kind} file {name} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UserError(f"the {kind} file {name} cannot be run: {error}") from error


def demo(args: Namespace) -> int:
    from lab.running.execute import checked

    with _reporting(args.output):
        check_writable(Path(args.output).absolute())  # before eight processes have worked for it
    run, status = _execute(checked(Job.from_options(**DEMO)), as_json=args.json)
    if run is None:
        return status
    if args.json:
        print(json.dumps(run.summary | {"report": str(_write_report(run, args.output))}))
        return status
    print_run(run, as_json=False)
    path = _write_report(run, args.output)
    print(f"\nThe whole story is in {path}: open it in a browser.")
    print("Look first at the timeline: the hatched gaps are the pipeline bubble. Then try")
    command = "lab" if shutil.which("lab") else f"{Path(sys.executable).parent}/lab"  # `make demo` activates nothing
    print(f"  {command} run --dp 2 --tp 2 --pp 2 --zero 3 --microbatches 8")
    print(f"or learn it step by step, in JupyterLab: {command} notebooks")
    print(f"or launch runs, watch them and lay them side by side: {command} dashboard")
    return status


def report(args: Namespace) -> int:
    with opened_runs(args.run) as (run,):
        path = str(_write_report(run, args.output, args.cluster))
    print(json.dumps({"run": run.id, "report": path}) if args.json else path)
    return OK


def _write_report(run: Run, output: str, cluster: str | None = None) -> Path:
    with _reporting(output):
        return run.report(Path(output).absolute(), cluster)


@contextmanager
def _reporting(output: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:  # not of the system: a table of the run that cannot be read
            raise
        raise StoreError(f"the report {output} cannot be written: {error.strerror}.") from error


# -- looking -------------------------------------------------------------------------------------------------


def console() -> Console:
    """rich is imported here, since most commands end without it."""
    from rich.console import Console

    return Console()


def print_run(run: Run, as_json: bool, cluster: str | None = None) -> None:
    """The summary; beside the measured times those of a replay on `cluster`, by default the one that the run names."""
    replay = None
    if cluster is not None or (run.status == "finished" and run.job.hardware.cluster and run.summary["steps"]):
        replay = run.replay(cluster)
    if as_json:
        from lab.store.simulated_summary import replay_numbers

        print(json.dumps(run.summary | ({"replay": replay_numbers(replay.summary)} if replay else {})))
        return
    from lab.cli.terminal.run import show

    show(run, console(), replay)


def show(args: Namespace) -> int:
    with opened_runs(args.run) as (run,):
        print_run(run, args.json, args.cluster)
    return OK


def runs(args: Namespace) -> int:
    found = all_runs()
    if args.json:
        print(json.dumps({"runs": [_listed(run) for run in found]}))
        return OK
    from lab.cli.terminal.runs import print_runs

    print_runs(found, console(), everything=args.all)
    return OK


def _listed(run: Run) -> dict[str, Any]:
    told = {"run": run.id, "status": run.status, "message": run.message, "created": run.info.created}
    return told | {"bug": run.info.job.get("bug") or None} | run.digest


def program(args: Namespace) -> int:
    from lab.cli.commands.program import print_program

    print_program(args, job_of(args), console())
    return OK


def plan(args: Namespace) -> int:
    from lab.cli.terminal.progress import Notice
    from lab.running.planning import DEFAULT_CLUSTER, as_json, plan

    top, refine = whole_number(args.top, "top", 1), whole_number(args.refine, "refine")
    base, fixed = job_of(args) if args.job is not None else Job(), given(args)
    cluster = fixed.pop("cluster", base.hardware.cluster) or DEFAULT_CLUSTER
    gpus, reserve = (
        whole_number(args.gpus, "gpus", 1),
        None if args.reserve is None else number(args.reserve, "reserve"),
    )
    with Notice(f"searching all plans for {gpus:,} GPUs (Ctrl-C ends it)", logged=False):
        found = plan(args.model or base, cluster, gpus, refine=refine, reserve_gb=reserve, **fixed)
    if args.json:
        print(json.dumps(as_json(found, top)))
    else:
        from lab.cli.terminal.plans import print_search

        print_search(found, console(), top)
    return OK


def doctor(args: Namespace) -> int:
    from lab.cli.commands.doctor import checks
    from lab.cli.terminal.checks import print_check

    screen, made = console(), []
    for check in checks():
        made.append(check)
        if not args.json:
            print_check(check, screen)
    if args.json:
        rows = [{"name": c.name, "ok": c.ok, "found": c.found, "advice": c.advice} for c in made]
        print(json.dumps({"ok": all(check.ok for check in made), "checks": rows}))
    return OK if all(check.ok for check in made) else FAILED
