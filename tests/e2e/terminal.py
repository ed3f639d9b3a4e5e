"""A person at a terminal: starts the parts by hand, runs commands, reads what they say."""

import asyncio
import os
import shlex
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from runtime.children import free_port
from tests.conftest import eventual_answer
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway

BOUND_S = 120.0
LOGGED = " > "
PARTS = (
    ".venv/bin/nats-server -js -a 127.0.0.1 > nats.log 2>&1 &",
    ".venv/bin/tradewind master > master.log 2>&1 &",
    ".venv/bin/tradewind cluster > cluster.log 2>&1 &",
)


class Terminal:
    """Lines are as in the README; `&` leaves a command in the background. Ports and folders are the terminal's own."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.nats_port, api_port = free_port(), free_port()
        self.environ = {
            **os.environ,
            **environ,
            "OMP_NUM_THREADS": "1",
            "TRADEWIND_NATS_URL": f"nats://127.0.0.1:{self.nats_port}",
            "TRADEWIND_API_PORT": f"{api_port}",
            "TRADEWIND_API_URL": f"http://127.0.0.1:{api_port}",
        }
        self.background: list[Process] = []

    async def __aenter__(self) -> "Terminal":
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in reversed(self.background):
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(30):
                    await process.communicate()
            except TimeoutError:
                process.kill()
                await process.communicate()

    async def run(self, line: str, *, code: int = 0) -> str:
        process = await self.start(line)
        if line.endswith("&"):
            self.background.append(process)
            return ""
        async with asyncio.timeout(BOUND_S):
            out, _ = await process.communicate()
        assert process.returncode == code, f"{line}: {out.decode()}"
        return out.decode()

    async def start_parts(self) -> None:
        for line in PARTS:
            await self.run(line)
        await self.until_healthy()

    async def until_healthy(self) -> None:
        async def asked(api: Api) -> bool:
            await api.jobs()
            return True

        await self._until(asked, "the master answers")

    async def until_phase(self, job: str, phase: str) -> None:
        async def asked(api: Api) -> bool:
            return (await api.job(job)).phase == phase

        await self._until(asked, f"job {job} is {phase}")

    async def until_reported(self, job: str, words: str) -> None:
        async def asked(api: Api) -> bool:
            return any([words in f"{event.text} {event.why}" async for event in api.events(job)])

        await self._until(asked, f"somebody says {words!r}")

    async def _until(self, asked: Callable[[Api], Awaitable[bool]], what: str) -> None:
        """Without a command for every look: each would take half a second of a core."""
        async with session() as opened:
            api = Api(opened, self.environ["TRADEWIND_API_URL"])
            await eventual_answer(lambda: _unless_away(asked(api)), what=what, timeout_s=BOUND_S)

    @property
    def nats_url(self) -> str:
        return self.environ["TRADEWIND_NATS_URL"]

    async def start(self, line: str) -> Process:
        command, _, log = line.removesuffix("&").partition(LOGGED)
        words = shlex.split(command.replace(".venv/bin", str(Path(sys.executable).parent)))
        if words[0].endswith("nats-server"):
            words += ["-p", f"{self.nats_port}", "-sd", str(self.folder / "nats")]
        with ExitStack() as stack:
            out = stack.enter_context((self.folder / log.split()[0]).open("wb")) if log else PIPE
            return await asyncio.create_subprocess_exec(
                *words, cwd=self.folder, env=self.environ, stdout=out, stderr=STDOUT
            )


async def _unless_away(asked: Awaitable[bool]) -> bool:
    try:
        return await asked
    except MasterAway:
        return False
