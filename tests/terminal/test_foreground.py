"""Interrupted work: `gently` runs first, then the work is cancelled and cleans up."""

import asyncio
import signal

import pytest

from runtime.errors import UserError
from runtime.process import Stop
from tradewind.terminal.foreground import unless_stopped


async def for_ever() -> int:
    never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    return await never


async def test_work_that_is_not_interrupted_gives_its_result() -> None:
    async def work() -> int:
        return 7

    assert await unless_stopped(work(), Stop()) == 7


async def test_interrupted_work_cleans_up_and_the_code_tells_the_signal() -> None:
    stop, done = Stop(), list[str]()

    async def work() -> int:
        try:
            stop.on_signal(signal.SIGINT)
            return await for_ever()
        finally:
            await asyncio.sleep(0)
            done.append("cleaned up")

    async def gently() -> None:
        done.append("asked")

    assert await unless_stopped(work(), stop, gently) == 130
    assert done == ["asked", "cleaned up"]


async def test_what_goes_wrong_in_the_work_is_told() -> None:
    async def work() -> int:
        raise UserError("No.")

    with pytest.raises(UserError):
        await unless_stopped(work(), Stop())


async def test_what_goes_wrong_in_the_cleaning_up_is_told() -> None:
    stop = Stop()

    async def work() -> int:
        try:
            stop.on_signal(signal.SIGTERM)
            return await for_ever()
        finally:
            raise UserError("It could not be cleaned up.")

    with pytest.raises(UserError, match="cleaned up"):
        await unless_stopped(work(), stop)
