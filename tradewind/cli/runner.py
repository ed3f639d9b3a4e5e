"""Runs the work of a command, and exits with its result."""

import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from runtime.errors import UserError
from runtime.process import Stop, run
from tradewind.client.api import Api, connected
from tradewind.client.errors import MasterAway
from tradewind.terminal.foreground import quiet_logs, unless_stopped


def ask_master(work: Callable[[Api], Coroutine[Any, Any, int]]) -> NoReturn:
    """Exits with what the work returns; with one line for people if the master is away."""

    async def asked() -> int:
        async with connected(os.environ) as api:
            try:
                return await work(api)
            except MasterAway as away:
                raise UserError(str(away), away.hint) from away

    run_command(asked)


def run_command(work: Callable[[], Coroutine[Any, Any, int]], log_level: str = "warning") -> NoReturn:
    """Exits with the work's result; on ctrl-C the work is cancelled at once."""

    async def main(stop: Stop) -> int:
        return await unless_stopped(work(), stop)

    quiet_logs(log_level)
    sys.exit(run(main))
