"""Errors of a command: text for people, or one JSON object on standard error, and the exit code."""

import json
import re
import sys
from collections.abc import Callable

import click

from runtime.errors import TradewindError, UserError
from runtime.exit_codes import EXIT_USER_ERROR

USAGE = "usage"
"""The kind of an error in the command line itself."""
_PLACED = re.compile(r"(?P<place>[^\s:]+): (?P<message>.*)", re.DOTALL)


def reporter(*, as_json: bool) -> Callable[[TradewindError], int]:
    """The function that prints an error and returns its exit code."""
    from runtime.process import tell

    return tell_json if as_json else tell


def tell_json(error: TradewindError) -> int:
    message = error.message if isinstance(error, UserError) else str(error)
    _print(error.kind, message, error.hint, error.problems)
    return error.exit_code


def tell_usage(error: click.ClickException, *, as_json: bool) -> int:
    if as_json:
        context = error.ctx if isinstance(error, click.UsageError) else None
        _print(USAGE, error.format_message(), f"{context.command_path} --help" if context is not None else "")
    else:
        error.show()
    return EXIT_USER_ERROR


def _print(kind: str, message: str, hint: str, problems: tuple[str, ...] = ()) -> None:
    """`place` is the key, option or variable of a problem."""
    answer: dict[str, object] = {"kind": kind, "message": message}
    if problems:
        answer["problems"] = [_problem(problem) for problem in problems]
    if hint:
        answer["next"] = hint
    print(json.dumps(answer), file=sys.stderr)


def _problem(text: str) -> dict[str, str]:
    placed = _PLACED.fullmatch(text)
    return placed.groupdict() if placed is not None else {"message": text}
