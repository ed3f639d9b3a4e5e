"""The command as people start it: a process with arguments, an environment, two outputs and an exit code."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str


async def started(*arguments: str, environ: Mapping[str, str], cwd: Path | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tradewind", *arguments),
        env={**without_ours(os.environ), **environ},
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finished(process: asyncio.subprocess.Process, timeout_s: float = TIMEOUT_S) -> Outcome:
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return Outcome(process.returncode or 0, (out or b"").decode(), (err or b"").decode())


async def tradewind(*arguments: str, environ: Mapping[str, str], cwd: Path | None = None) -> Outcome:
    return await finished(await started(*arguments, environ=environ, cwd=cwd))


def without_ours(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith("TRADEWIND_")}
