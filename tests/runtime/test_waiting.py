import asyncio

import pytest

from runtime.link import translated
from runtime.waiting import cancellation_preserved, first_of


async def test_whichever_comes_first_ends_the_wait() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    assert not await first_of(first, second, timeout_s=0.01)
    second.set()
    assert await first_of(first, second)


async def test_after_the_wait_nothing_of_it_is_left() -> None:
    others = asyncio.all_tasks()
    first, second = asyncio.Event(), asyncio.Event()
    first.set()
    assert await first_of(first, second)
    assert asyncio.all_tasks() == others
    cancelled = asyncio.create_task(first_of(second))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert asyncio.all_tasks() == others


async def test_a_cancellation_that_comes_together_with_the_result_is_not_forgotten() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ask() -> int:
        with cancellation_preserved():
            return await asyncio.wait_for(answer, 5.0)

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    answer.set_result(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_a_client_swallows_ends_the_one_that_calls_the_bus() -> None:
    async def swallow() -> None:
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            return

    async def call() -> None:
        with translated("asking"):
            await swallow()

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_around_it_stays_a_timeout() -> None:
    async def forgetful() -> None:
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            return

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            with cancellation_preserved():
                await forgetful()


async def test_what_was_cancelled_before_may_still_finish_its_work() -> None:
    async def work() -> str:
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            with cancellation_preserved():
                await asyncio.sleep(0)
            return "cleared up"
        return "never"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cleared up"
