"""Arguments, options and help texts that several commands share."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from runtime.setting_option import SettingOption

Command = TypeVar("Command", bound=Callable[..., Any])

COMPLETION_S = 0.7
"""Seconds that the shell's completion waits for the master's answer."""

MASTER_HELP = """
\b
TRADEWIND_API_URL is the address of the master, or several with commas between: the command finds the leader.
Default: http://127.0.0.1:8800. TRADEWIND_API_TOKEN is the master's token.
"""
PROCESS_HELP = """
\b
A flag wins over its variable. TRADEWIND_LOG=json writes logs as JSON; TRADEWIND_LOG_LEVEL is debug, info, warning or
error.
"""


class Whole(click.IntRange):
    """A whole number between bounds, called `integer` in messages, where click writes a range."""

    name = "integer"


class Number(click.FloatRange):
    """A number between bounds, called `number` in messages, where click writes a range."""

    name = "number"


def examples(*lines: str, after: str = MASTER_HELP) -> str:
    """The end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) + "\n" + after


def _complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _job_names(os.environ) if name.startswith(incomplete)]


def _job_names(environ: Mapping[str, str]) -> list[str]:
    """The names of all jobs, or none if the master does not answer in time."""
    import asyncio

    from runtime.errors import TradewindError
    from tradewind.client.api import connected

    async def ask() -> list[str]:
        async with asyncio.timeout(COMPLETION_S), connected(environ) as api:
            return sorted(view.name for view in await api.jobs())

    try:
        return asyncio.run(ask())
    except (TradewindError, TimeoutError):
        return []


job_argument = click.argument("job", shell_complete=_complete_job)
some_job_argument = click.argument("job", required=False, shell_complete=_complete_job)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, also for errors.")
follow_option = click.option(
    "--follow", "-f", is_flag=True, help="Also print new ones until the job ends; ctrl-C ends the command."
)
setting = partial(click.option, cls=SettingOption)
nats_option = setting("--nats-url", shows="nats://127.0.0.1:4222", help="URL of the bus.")


def last_option(what: str) -> Callable[[Command], Command]:
    """`--tail N`: only the last N; with `--follow`, all newer ones after them."""
    return click.option(
        "--tail", type=Whole(min=0), metavar="N", show_default="all", help=f"Print only the last N {what}."
    )
