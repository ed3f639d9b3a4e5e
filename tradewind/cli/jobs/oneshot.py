"""A command that asks the master something and ends: at once on ctrl-C, with one sentence if the master is away."""

import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from runtime.errors import UserError
from runtime.logs import LEVEL_VARIABLE, configure
from runtime.process import Stop, run
from tradewind.cli.api.client import Api, connected
from tradewind.cli.api.errors import MasterAway
from tradewind.cli.interrupt import unless_stopped


def ask_master(work: Callable[[Api], Coroutine[Any, Any, int]]) -> NoReturn:
    async def main(stop: Stop) -> int:
        async with connected(os.environ) as api:
            try:
                return await unless_stopped(work(api), stop)
            except MasterAway as away:
                raise UserError(str(away), away.hint) from away

    quiet_logs()
    sys.exit(run(main))


def quiet_logs(level: str = "warning") -> None:
    """People who use a command read its own lines; the logs of a role are for roles."""
    configure("command", environ={LEVEL_VARIABLE: level} | os.environ)
