"""`lab export`: a run for other tools."""

from __future__ import annotations

import json
from argparse import Namespace

from lab import exports
from lab.commands import OK, corrupt
from lab.options import whole_number
from lab.runs import load


def export(args: Namespace) -> int:
    run = load(args.run)
    if run.status == "corrupt":
        return corrupt(run, args.json)
    step = None if args.step is None else whole_number(args.step, "step")
    path = str(exports.export(run, args.format, args.output or exports.default_name(run, args.format), step))
    print(json.dumps({"run": run.id, "format": args.format, "export": path}) if args.json else path)
    return OK
