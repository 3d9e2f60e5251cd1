"""`lab export`: a run for other tools."""

from __future__ import annotations

import json
from argparse import Namespace

from lab import exports
from lab.commands import OK
from lab.looking import looking_at
from lab.options import whole_number


def export(args: Namespace) -> int:
    with looking_at(args.run) as (run,):
        step = None if args.step is None else whole_number(args.step, "step")
        path = str(exports.export(run, args.format, args.output or exports.default_name(run, args.format), step))
    print(json.dumps({"run": run.id, "format": args.format, "export": path}) if args.json else path)
    return OK
