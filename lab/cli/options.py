"""Command-line options made from the fields of Model, Plan and Training, with their docstrings as help.

Every value goes through `Job.from_options`, the same door as Python keywords and TOML files, so it is
refused in the same words.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import inspect
import math
import textwrap
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from engine.job.errors import UserError, short, told
from engine.job.job import CHOICES, Fault, Hardware, Job, Model, Plan, Training

SECTIONS = {"model": Model, "plan": Plan, "training": Training, "hardware": Hardware, "fault": Fault}
_METAVARS = {"int": "N", "float": "X", "str": "TEXT", "str | None": "FILE"}


class Parser(argparse.ArgumentParser):
    """Refuses in one sentence, as an exception, and never guesses an option from its beginning."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, exit_on_error=False, **options)

    def error(self, message: str) -> NoReturn:
        """argparse comes here for what is required and absent; the rest are `ArgumentError`s (see `parse`)."""
        absent = [_called(action) for action in self._actions if action.required]
        raise UserError(f"`{self.prog}` needs {', '.join(absent)}: see `{self.prog} --help`.")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse has it. Raises `UserError` where argparse would print usage and exit."""
        try:
            return super().parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            raise UserError(self._sentence(error, args or [])) from error

    def _sentence(self, error: argparse.ArgumentError, words: list[str]) -> str:
        """The complaint in our words, from the argument that it is about."""
        action = next(
            one for one in self._actions if error.argument_name in ("/".join(one.option_strings), one.metavar)
        )
        if action.choices is not None:
            word = next(word for word in words if not word.startswith("-"))
            near = _near(word, list(action.choices))
            return f"there is no command {told(word)}: {near or 'there are ' + ', '.join(action.choices) + '.'}"
        if action.nargs == 0:
            return f"{_called(action)} takes no value: write {_called(action)} alone."
        return f"{_called(action)} needs a value: see `{self.prog} --help`."


def _called(action: argparse.Action) -> str:
    """An argument by the name that users write."""
    return action.option_strings[0] if action.option_strings else str(action.metavar)


def _near(word: str, known: list[str]) -> str:
    """The end of a sentence: the most similar known word, of equally similar ones that which begins alike."""
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if not near:
        return ""

    def shared(other: str) -> int:
        """How many letters at the beginning are the same."""
        return next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), len(word))

    return f"did you mean {max(near, key=shared)}?"


def parse(parser: Parser, argv: list[str]) -> argparse.Namespace:
    """Parses; an option nobody knows is refused with the nearest one that exists."""
    args: argparse.Namespace
    args, unknown = parser.parse_known_args(argv)
    if not unknown:
        return args
    used: Parser = args.parser
    word = next((w for w in unknown if w.startswith("-")), unknown[0])
    if not word.startswith("-"):
        raise UserError(f"`{used.prog}` does not know what to do with {told(word)}: see `{used.prog} --help`.")
    flag = word.split("=")[0]
    flags = [option for action in used._actions for option in action.option_strings if option.startswith("--")]
    near = _near(flag.replace("_", "-"), flags)
    raise UserError(f"`{used.prog}` has no option {short(flag)}: {near or f'see `{used.prog} --help`.'}")


def add_job_options(parser: Parser) -> None:
    """The fields of a job as options. Only those given appear in the parsed namespace."""
    general = parser.add_argument_group("job")
    general.add_argument("--job", metavar="FILE", help="a TOML job file; options given here override it")
    for title, kind in SECTIONS.items():
        group = parser.add_argument_group(title, (inspect.getdoc(kind) or "").split("\n")[0])
        docs, types = field_docs(kind), get_type_hints(kind)
        for field in fields(kind):
            choices = get_args(types[field.name]) if get_origin(types[field.name]) is Literal else ()
            choices = CHOICES[field.name].names if field.name in CHOICES else choices
            _add_option(group, field, docs.get(field.name, ""), choices)


def _add_option(group: Any, field: Field[Any], doc: str, choices: tuple[str, ...]) -> None:
    flag = "--" + field.name.replace("_", "-")
    default = field.default if field.default is not MISSING else None
    if isinstance(default, bool):
        group.add_argument(
            flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS,
            help=f"{doc} Default: {'on' if default else 'off'}.",
        )  # fmt: skip
        return
    metavar = "NAME" if choices or field.name in ("cluster", "bug") else _METAVARS.get(str(field.type), "N,N,…")
    if choices and not all(choice in doc for choice in choices):
        doc += f" One of {', '.join(choices)}."
    tail = f" Default: {default}." if default not in (None, "") else ""
    group.add_argument(flag, metavar=metavar, default=argparse.SUPPRESS, help=f"{doc}{tail}".replace("%", "%%"))


def field_docs(kind: type[Any]) -> dict[str, str]:
    """The docstring under each field of a class, which Python itself does not keep."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for node, below in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            docs[node.target.id] = " ".join(str(below.value.value).split())
    return docs


def job_of(args: argparse.Namespace, base: Job | None = None) -> Job:
    """The job that the options describe, on top of `--job` or `base`. Raises `UserError`."""
    if args.job is not None:
        return Job.from_toml(Path(args.job), **given(args))
    return Job.from_options(base, **given(args))


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The job options on the command line, by name."""
    known = {field.name for kind in SECTIONS.values() for field in fields(kind)}
    found = {name: value for name, value in vars(args).items() if name in known}
    if "partition" in found:
        found["partition"] = whole_numbers(found["partition"])
    return found


def whole_number(text: str, name: str, least: int = 0) -> int:
    """Of an option that is not the job's. Raises `UserError`."""
    try:
        found = int(text)
    except ValueError:
        raise UserError(f"{name}={told(text)} is not valid: use a whole number.") from None
    if found < least:
        raise UserError(f"{name}={found} is too small: use {least} or more.")
    return found


def number(text: str, name: str) -> float:
    """The same with a point."""
    try:
        found = float(text)
    except ValueError:
        raise UserError(f"{name}={told(text)} is not valid: use a number.") from None
    if not math.isfinite(found):
        raise UserError(f"{name}={told(text)} is not valid: use a finite number.")
    return found


def whole_numbers(text: str) -> tuple[int, ...]:
    """Of the option `partition`. Raises `UserError`."""
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise UserError(f"partition={told(text)} is not a list of whole numbers: use for example 2,1,1.") from None
