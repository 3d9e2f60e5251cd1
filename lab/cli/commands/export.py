"""`lab export`: a run for other tools."""

from __future__ import annotations

import json
from argparse import Namespace

from lab.cli.commands.run import OK
from lab.cli.open_runs import opened_runs
from lab.cli.options import whole_number
from lab.views import exports


def export(args: Namespace) -> int:
    with opened_runs(args.run) as (run,):
        step = None if args.step is None else whole_number(args.step, "step")
        path = str(exports.export(run, args.format, args.output or exports.default_name(run, args.format), step))
    print(json.dumps({"run": run.id, "format": args.format, "export": path}) if args.json else path)
    return OK
