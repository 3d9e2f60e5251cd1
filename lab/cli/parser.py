"""The `lab` command line.

Exit status: 0 done; 1 the run failed or differs from one process; 2 refused; 130 interrupted.
"""

from __future__ import annotations

import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path

from engine.job.errors import UserError, short
from engine.prediction.published_models import PRESETS
from lab.cli.commands import (
    bugs,
    compare,
    export,
    run,
    simulate,
)
from lab.cli.commands import (
    cancel as launch_commands,
)
from lab.cli.commands import (
    notebooks as notebooks_command,
)
from lab.cli.commands.run import FAILED, INTERRUPTED, OK, REFUSED, report_failure
from lab.cli.options import Parser, add_job_options, parse
from lab.running.planning import SHOWN
from lab.shadowed import shadow_of
from lab.store.stored_run import RunCorrupt, RunNotFound, StoreError
from lab.views.exports import FORMATS, OF_A_STEP

EXAMPLES = """examples:
  lab demo                                    see it all once: eight processes and a report
  lab run --dp 2 --tp 2 --pp 2 --zero 1       train under a plan of your own
  lab simulate --model gpt3-175b --tp 8 --pp 8 --dp 16     on a cluster that nobody here has
  lab program --dp 4 --zero 3 --against "--zero 1"    what did ZeRO-3 add?
  lab notebooks                               learn it step by step, in JupyterLab
  lab show latest; lab report latest -o report.html; lab export latest -o trace.json
"""
OUTPUT = ("-o", "--output")
Command = Callable[..., Parser]
"""Adds a command: what it does, what is said of it, and its arguments in short."""
RUN_HELP = "a run's id, the beginning or end of one, latest, or -1 for the newest, -2…"


def main(argv: list[str] | None = None) -> int:
    """Runs one command line; the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    as_json = "--json" in argv
    try:
        args = parse(_parser(), _joined(argv))
        status: int = args.command(args)
        sys.stdout.flush()
        return status
    except (UserError, RunNotFound) as error:
        return report_failure("refused", str(error), REFUSED, as_json=as_json)
    except StoreError as error:
        return report_failure("failed", str(error), FAILED, as_json=as_json)
    except RunCorrupt as error:
        return report_failure("corrupt", str(error), FAILED, as_json=as_json, run_id=error.run)
    except KeyboardInterrupt:
        return report_failure("stopped", "stopped.", INTERRUPTED, as_json=as_json)
    except OSError as error:
        return report_failure("failed", f"{short(_in_words(error))}.", FAILED, as_json=as_json)


def _in_words(error: OSError) -> str:
    """What is missing, or in the way, by its name: the system leaves out that of the current folder."""
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    try:
        Path.cwd()
    except FileNotFoundError:
        return "the folder in which this was started does not exist any more: go to another one"
    return error.strerror or str(error)


def _joined(argv: list[str]) -> list[str]:
    """`--against VALUE` in one word: the value begins with dashes, which argparse takes for an option."""
    joined: list[str] = []
    for word in argv:
        joined += [f"{joined.pop()}={word}"] if joined[-1:] == ["--against"] else [word]
    return joined


def _parser() -> Parser:
    parser = Parser(
        prog="lab",
        description="Train small GPTs under any DP × TP × PP × ZeRO plan for real, and see what happened.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=lambda _: _help(parser), parser=parser)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)

    def command(do: Callable[[Namespace], int], words: str, arguments: str = "[options]") -> Parser:
        name = do.__name__.removeprefix("_")
        added: Parser = subparsers.add_parser(
            name, help=words, usage=f"lab {name} {arguments}", description=f"{words[0].upper()}{words[1:]}."
        )
        added.set_defaults(command=do, parser=added)
        added.add_argument("--json", action="store_true", help="print one JSON object")
        return added

    _to_run(command)
    _to_look(command)
    _to_open(command)
    return parser


def _to_run(command: Command) -> None:
    """What runs, predicts and plans."""
    _options_of_run(command(run.run, "train under a plan and show what happened"))
    demo = command(run.demo, "run 2 × 2 × 2 ranks with ZeRO-1 on real text and write a report of it")
    demo.add_argument(*OUTPUT, metavar="FILE", default="demo-report.html", help="default: demo-report.html")
    cancel = command(launch_commands.cancel, "stop a run of the queue, waiting or under way", "RUN [options]")
    cancel.add_argument("run", metavar="RUN", help=RUN_HELP)
    _options_of_simulation(command(simulate.simulate, "say what a plan would do on a described cluster"))
    _options_of_plan(command(run.plan, "find the fastest plan that fits, on a described cluster"))
    clusters = command(simulate.clusters, "list the described clusters", "[NAME …] [options]")
    clusters.add_argument("names", metavar="NAME", nargs="*", help="these, with where their numbers come from")
    command(simulate.calibrate, "measure this machine, as the cluster called here")
    command(run.doctor, "check that everything a run needs works here")


def _to_look(command: Command) -> None:
    """What shows runs, and what they ran."""
    runs = command(run.runs, "list the runs in the store")
    runs.add_argument("--all", action="store_true", help="not only the newest 20")
    show = command(run.show, "show the summary of a run again", "RUN [options]")
    compared = command(compare.compare, "lay two to six runs side by side", "RUN RUN [RUN …] [options]")
    compared.add_argument("runs", metavar="RUN", nargs="+", help=f"the first is the baseline; {RUN_HELP}")
    compared.add_argument("--cluster", metavar="NAME", help="compare their replays on this cluster instead")
    report = command(run.report, "write a run as one HTML file that needs nothing else", "RUN [options]")
    for one in (show, report):
        one.add_argument("run", metavar="RUN", help=RUN_HELP)
        one.add_argument("--cluster", metavar="NAME", help="show beside it how long its step would take there")
    report.add_argument(*OUTPUT, metavar="FILE", default="report.html", help="default: report.html")
    exported = command(export.export, "write a run for Perfetto, HTA, or as tables", "RUN [options]")
    exported.add_argument("run", metavar="RUN", help=RUN_HELP)
    _options_of_export(exported)
    _options_of_program(command(run.program, "print the program that a plan compiles to"))
    command(bugs.bugs, "list the faults that can be put into a run on purpose: lab run --bug NAME")


def _to_open(command: Command) -> None:
    """What opens in the browser."""
    words = "open the notebooks in JupyterLab, on a copy that is yours to change"
    notebooks = command(notebooks_command.notebooks, words)
    notebooks.add_argument("--to", metavar="FOLDER", default="lab-notebooks", help="the copy; default: lab-notebooks")
    notebooks.add_argument("--fresh", action="store_true", help="put what you changed aside as .bak and copy it anew")
    served = command(_dashboard, "open the dashboard: launch runs, watch them, compare them")
    for one, port in ((notebooks, 8888), (served, 8501)):
        one.add_argument("--no-browser", action="store_true", help="open no browser; the address is printed")
        one.add_argument("--port", metavar="N", help=f"default: {port}, or one that is free")
    served.add_argument("--no-token", action="store_true", help="let everybody on this machine in, without a token")


def _dashboard(args: Namespace) -> int:
    """What the package that stands on this one has declared as this command."""
    from importlib.metadata import entry_points

    for declared in entry_points(group="shardlab.commands", name="dashboard"):
        if said := shadow_of(declared.module.partition(".")[0]):
            raise UserError(said)
        status: int = declared.load()(args)
        return status
    raise UserError("the dashboard is not installed: install Shardlab again, `pip install -e .` in its folder.")


def _options_of_run(parser: Parser) -> None:
    parser.add_argument("--no-parity", action="store_true", help="do not compare with one process")
    parser.add_argument("--program", metavar="FILE", help="run this program, written or edited by hand")
    words = "run this order of micro-batches: a line for each pipeline rank, as in F0 F1 B0 B1 (I, W: split backward)"
    parser.add_argument("--schedule-file", metavar="FILE", help=words)
    add_job_options(parser)


def _options_of_simulation(parser: Parser) -> None:
    parser.add_argument("--model", metavar="NAME", help=f"a published model: {', '.join(PRESETS)}")
    parser.add_argument("--no-keep", action="store_true", help="do not keep it as a run in the store")
    parser.add_argument("--program", metavar="FILE", help="simulate this program, written or edited by hand")
    parser.add_argument("--schedule-file", metavar="FILE", help="simulate this order of micro-batches; see `lab run`")
    add_job_options(parser)


def _options_of_program(parser: Parser) -> None:
    parser.add_argument("--rank", metavar="N", help="only what this rank runs")
    parser.add_argument("--grid", action="store_true", help="draw ranks × time at unit costs instead")
    parser.add_argument("--against", metavar="OPTIONS", help='compare with these options, as in "--zero 1"')
    add_job_options(parser)


def _options_of_export(parser: Parser) -> None:
    words = "; ".join(f"{name}: {what}" for name, what in FORMATS.items())
    parser.add_argument("--format", metavar="NAME", default="perfetto", help=f"{words}; default: perfetto")
    words = "where to; a name that ends in .zip makes it one; default: named for the run"
    parser.add_argument(*OUTPUT, metavar="PATH", help=words)
    parser.add_argument("--step", metavar="N", help=f"of {' and '.join(OF_A_STEP)}, only this step; default: all")


def _options_of_plan(parser: Parser) -> None:
    parser.add_argument("--model", metavar="PRESET", help="a published model by name; default: the job's own")
    parser.add_argument("--gpus", metavar="N", required=True, help="how many devices there are")
    parser.add_argument("--top", metavar="N", default=str(SHOWN), help=f"how many plans to show; default: {SHOWN}")
    parser.add_argument("--refine", metavar="N", default="5", help="how many of the best to replay; default: 5")
    parser.add_argument("--reserve", metavar="GB", help="memory of each device kept free; default: 5 %%")
    add_job_options(parser)


def _help(parser: Parser) -> int:
    parser.print_help()
    return OK
