"""Arguments, options and help texts that several commands share."""

import os
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

COMPLETION_S = 0.7
"""Seconds that the shell's completion waits for the master's answer."""

MASTER_HELP = """
\b
The master is the one at TRADEWIND_API_URL (http://127.0.0.1:8800 if not set; of several with commas between, the
one that leads); TRADEWIND_API_TOKEN is its token.
"""
ROLE_HELP = """
\b
Each option is also a variable: --nats-url is TRADEWIND_NATS_URL, and so on. A flag wins.
TRADEWIND_LOG=json makes the logs JSON, TRADEWIND_LOG_LEVEL is one of debug, info, warning, error.
"""


class Whole(click.IntRange):
    """A whole number between bounds, shown as `integer` where click would show a range."""

    name = "integer"


class Number(click.FloatRange):
    """A number between bounds, shown as `number` where click would show a range."""

    name = "number"


def examples(*lines: str, after: str = MASTER_HELP) -> str:
    """The end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) + "\n" + after


def _complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _job_names(os.environ) if name.startswith(incomplete)]


def _job_names(environ: Mapping[str, str]) -> list[str]:
    """The names of all jobs, or none if no master answers at once."""
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
json_option = click.option("--json", "as_json", is_flag=True, help="JSON instead of text for people.")
nats_option = click.option("--nats-url", help="The bus.  [nats://127.0.0.1:4222]")
