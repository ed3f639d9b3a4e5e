"""A thread with its own event loop, for work that must not wait for a busy loop, and a mailbox to other loops."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
ITEMS_AT_MOST = 10_000


class ThreadFailed(RuntimeError):
    """A thread ended by itself or does not end, or a mailbox is full."""


class LoopThread:
    """Runs a coroutine in a thread. The task that awaits `run` owns it."""

    def __init__(self, name: str, main: Callable[[], Coroutine[Any, Any, None]], *, end_s: float) -> None:
        self._name = name
        self._main = main
        self._end_s = end_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    async def run(self) -> None:
        """Runs until the coroutine ends; raises its exception.

        If cancelled, cancels the coroutine and waits for the end of the thread, for at most `end_s`. The thread is a
        daemon, so it does not keep the process alive.
        """
        caller = asyncio.get_running_loop()
        ended: asyncio.Future[None] = caller.create_future()
        self._loop = type(caller)()
        threading.Thread(target=self._run, args=(self._loop, caller, ended), name=self._name, daemon=True).start()
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            self.post(self._cancel)
            await asyncio.wait({ended}, timeout=self._end_s)
            if not ended.done():
                raise ThreadFailed(f"the thread {self._name} did not end within {self._end_s:g} s") from None
            ended.result()
            raise
        ended.result()

    def post(self, callback: Callable[[], None]) -> None:
        """Calls the callback in the thread's loop, unless that has ended. Any thread may call this."""
        if self._loop is not None:
            _call(self._loop, callback)

    def _run(
        self, loop: asyncio.AbstractEventLoop, caller: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]"
    ) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._until_done())
        finally:
            _call(caller, lambda: self._settle(ended))

    async def _until_done(self) -> None:
        self._task = asyncio.create_task(self._main(), name=self._name)
        if self._cancelled:
            self._task.cancel()
        await asyncio.wait({self._task})

    def _settle(self, ended: "asyncio.Future[None]") -> None:
        """Sets the result, in the caller's loop, after the thread's loop has ended."""
        task = self._task
        if task is None or not task.done() or (task.cancelled() and not self._cancelled):
            ended.set_exception(ThreadFailed(f"the thread {self._name} ended by itself"))
        elif not task.cancelled() and (error := task.exception()) is not None:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    def _cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


class Mailbox(Generic[T]):
    """Passes items from any thread, in order, to one reader in the loop that created the mailbox."""

    def __init__(self, most: int = ITEMS_AT_MOST) -> None:
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._items: deque[T] = deque()
        self._arrived = asyncio.Event()

    def post(self, item: T) -> None:
        if len(self._items) >= self._most:
            raise ThreadFailed(f"{self._most} items wait for a loop that does not read them")
        self._items.append(item)
        _call(self._loop, self._arrived.set)

    async def next(self) -> T:
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        return self._items.popleft()


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback)
