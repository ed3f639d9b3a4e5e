"""A thread with an event loop of its own, for what must not wait for a loop that is busy; and the way back from it."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
ITEMS_AT_MOST = 10_000


class ThreadFailed(RuntimeError):
    """A thread ended by itself, or does not end, or reports to a loop that takes nothing."""


class LoopThread:
    """Runs a coroutine in a thread. Belongs to the task that awaits `run`, in the loop from which it is started."""

    def __init__(self, name: str, main: Callable[[], Coroutine[Any, Any, None]], *, end_s: float) -> None:
        self._name = name
        self._main = main
        self._end_s = end_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    async def run(self) -> None:
        """Until the coroutine ends; raises what it raises.

        If cancelled, cancels the coroutine and waits until the thread has ended, for at most `end_s`. The thread is a
        daemon: one that does not end does not keep the process.
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
        """From any thread: has it called in the thread's loop, unless that has ended."""
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
        """In the caller's loop, when the thread's has ended."""
        task = self._task
        if task is None or not task.done() or (task.cancelled() and not self._cancelled):
            ended.set_exception(ThreadFailed(f"the thread {self._name} ended without being asked to"))
        elif not task.cancelled() and (error := task.exception()) is not None:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    def _cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


class Mailbox(Generic[T]):
    """Items from any thread, in order, for one reader in the loop in which it was made."""

    def __init__(self, most: int = ITEMS_AT_MOST) -> None:
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._items: deque[T] = deque()
        self._arrived = asyncio.Event()

    def post(self, item: T) -> None:
        if len(self._items) >= self._most:
            raise ThreadFailed(f"{self._most} items wait for a loop that does not take them")
        self._items.append(item)
        _call(self._loop, self._arrived.set)

    async def next(self) -> T:
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        return self._items.popleft()


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: what it ran has ended
        loop.call_soon_threadsafe(callback)
