"""Threads with an event loop of their own: how they end, and how they report."""

import asyncio
import threading

import pytest

from runtime.loop_thread import LoopThread, Mailbox, ThreadFailed

END_S = 20.0


async def started(thread: LoopThread, up: threading.Event) -> "asyncio.Task[None]":
    running = asyncio.create_task(thread.run(), name="thread")
    assert await asyncio.to_thread(up.wait, END_S)
    return running


async def test_a_coroutine_runs_in_another_thread_and_loop_of_the_same_kind() -> None:
    seen: list[tuple[int, asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        seen.append((threading.get_ident(), asyncio.get_running_loop()))

    await LoopThread("beside", main, end_s=END_S).run()
    [(ident, loop)] = seen
    assert ident != threading.get_ident()
    assert loop is not asyncio.get_running_loop()
    assert type(loop) is type(asyncio.get_running_loop())
    assert loop.is_closed()


async def test_what_the_coroutine_raises_comes_out() -> None:
    async def main() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await LoopThread("beside", main, end_s=END_S).run()


async def test_the_one_that_cancels_it_waits_until_the_coroutine_has_tidied_up() -> None:
    up, tidied = threading.Event(), threading.Event()

    async def main() -> None:
        up.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.set()

    running = await started(LoopThread("beside", main, end_s=END_S), up)
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert tidied.is_set()


async def test_an_error_while_it_tidies_up_comes_out() -> None:
    up = threading.Event()

    async def main() -> None:
        up.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("broken")

    running = await started(LoopThread("beside", main, end_s=END_S), up)
    running.cancel()
    with pytest.raises(ValueError, match="broken"):
        await running


async def test_one_that_is_cancelled_at_once_ends() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    running = asyncio.create_task(LoopThread("beside", main, end_s=END_S).run(), name="thread")
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_a_thread_that_does_not_end_is_given_up() -> None:
    up, free = threading.Event(), threading.Event()

    async def main() -> None:
        up.set()
        free.wait(END_S)

    running = await started(LoopThread("beside", main, end_s=0.1), up)
    running.cancel()
    try:
        with pytest.raises(ThreadFailed, match=r"beside .*0\.1 s"):
            await running
    finally:
        free.set()


async def test_a_coroutine_that_cancels_itself_counts_as_an_error() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ThreadFailed, match="beside") as raised:
        await LoopThread("beside", main, end_s=END_S).run()
    assert f"{END_S:g} s" not in str(raised.value), "not the message of a thread that does not end"


async def test_what_is_posted_runs_in_its_loop_and_later_nowhere() -> None:
    up, asked = threading.Event(), asyncio.Event()
    idents: list[int] = []

    async def main() -> None:
        up.set()
        await asked.wait()

    def post_here() -> None:
        idents.append(threading.get_ident())
        asked.set()

    thread = LoopThread("beside", main, end_s=END_S)
    running = await started(thread, up)
    thread.post(post_here)
    await running
    thread.post(post_here)
    assert len(idents) == 1
    assert idents[0] != threading.get_ident()


async def test_a_mailbox_keeps_the_order() -> None:
    mailbox: Mailbox[int] = Mailbox()

    async def main() -> None:
        for number in range(1000):
            mailbox.post(number)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(LoopThread("beside", main, end_s=END_S).run(), name="thread")
        assert [await mailbox.next() for _ in range(1000)] == list(range(1000))


async def test_a_mailbox_that_is_not_read_is_bounded() -> None:
    mailbox: Mailbox[int] = Mailbox(most=2)
    mailbox.post(1)
    mailbox.post(2)
    with pytest.raises(ThreadFailed, match="2 items wait"):
        mailbox.post(3)
