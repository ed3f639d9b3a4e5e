"""Runs the work of a command, and exits with its result."""

import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import click

from runtime.process import Stop, run
from tradewind.cli.failures import reporter
from tradewind.client.api import Api, connected
from tradewind.terminal.foreground import quiet_logs, unless_stopped


def ask_master(work: Callable[[Api], Coroutine[Any, Any, int]]) -> NoReturn:
    """Runs the work with a client of the master, and exits with its result."""

    async def asked() -> int:
        async with connected(os.environ) as api:
            return await work(api)

    run_command(asked)


def run_command(work: Callable[[], Coroutine[Any, Any, int]], log_level: str = "warning") -> NoReturn:
    """Exits with the work's result; on ctrl-C the work is cancelled at once."""

    async def main(stop: Stop) -> int:
        return await unless_stopped(work(), stop)

    quiet_logs(log_level)
    as_json = click.get_current_context().params.get("as_json", False)
    sys.exit(run(main, report=reporter(as_json=as_json)))
