"""The frame of a process: event loop, signals, a bounded drain, error messages, exit code.

The first SIGTERM, SIGINT or SIGHUP asks `main` to end, the second forces it. A `main` that does not end in time is
cancelled; if that fails too, the process exits anyway.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

from runtime.errors import BusRefused, Temporary, TradewindError, UserError
from runtime.exit_codes import EXIT_INTERRUPTED, EXIT_TERMINATED
from runtime.logs import logger
from runtime.plain_text import plain_lines

_KNOWN = (UserError, Temporary, BusRefused)


class Stop:
    """A request to end the process. `asked` is the first request, `forced` the second."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()
        self.signal: signal.Signals | None = None
        """The first signal; None if the request was not a signal."""
        self.why = ""

    async def wait(self) -> None:
        await self.asked.wait()

    def ask(self, why: str) -> None:
        if not self.asked.is_set():
            self.why = why
            self.asked.set()

    def force(self, why: str) -> None:
        self.ask(why)
        self.forced.set()

    def on_signal(self, number: signal.Signals) -> None:
        if self.asked.is_set():
            self.force(number.name)
            return
        self.signal = number
        self.ask(number.name)


def tell(error: TradewindError) -> int:
    """Prints the error and what to try on standard error; returns its exit code."""
    print(f"Error: {_indented(message_of(error))}", file=sys.stderr)
    for problem in error.problems:
        print(f"  {_indented(problem)}", file=sys.stderr)
    if error.hint:
        print(f"Try: {_indented(error.hint)}", file=sys.stderr)
    return error.exit_code


def message_of(error: TradewindError) -> str:
    """The message without the problems."""
    return error.message if isinstance(error, UserError) else str(error)


def run(
    main: Callable[[Stop], Awaitable[int]],
    *,
    drain_s: float = 30.0,
    force_s: float = 5.0,
    report: Callable[[TradewindError], int] = tell,
) -> int:
    """Runs `main` and returns the exit code for `sys.exit`.

    After a request to end, `main` has `drain_s` to return; after a second request, `force_s`. Then it is cancelled, and
    `force_s` later the process exits in any case. `report` prints a known error and returns its exit code.
    """
    gc.freeze()  # otherwise full collections visit all imported modules and delay answers
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_guarded(main, drain_s, force_s))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BaseExceptionGroup as group:
        known = known_error(group)
        if known is None:
            raise
        return report(known)
    except _KNOWN as error:
        return report(error)


def leave(code: int) -> NoReturn:
    """Exits without the interpreter's teardown, which takes a tenth of a second of a core from trainers on this
    machine."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _indented(text: str) -> str:
    """Indents all lines after the first: text from outside must not look like a line of Tradewind."""
    return "\n    ".join(plain_lines(text))


def known_error(group: BaseExceptionGroup[BaseException]) -> TradewindError | None:
    """Returns the first error of the group if all of them are expected failures, else None."""
    known, rest = group.split(_KNOWN)
    if known is None or rest is not None:
        return None
    leaf: BaseException = known
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    return leaf if isinstance(leaf, TradewindError) else None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _asking_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that request an end: also SIGHUP, unless the parent process set it to be ignored.

    Only the main thread gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        return ()
    hears_hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hears_hangup else []))


async def _guarded(main: Callable[[Stop], Awaitable[int]], drain_s: float, force_s: float) -> int:
    loop = asyncio.get_running_loop()
    stop = Stop()
    for number in _asking_signals():
        loop.add_signal_handler(number, stop.on_signal, number)
    work = loop.create_task(_awaited(main(stop)), name="main")
    watch = loop.create_task(_bound(stop, work, drain_s, force_s), name="stop-watch")
    try:
        code = await work
    except asyncio.CancelledError:
        if not work.cancelled():
            raise
        code = EXIT_TERMINATED
    finally:
        watch.cancel()
    return EXIT_INTERRUPTED if stop.signal is signal.SIGINT and code in (0, EXIT_TERMINATED) else code


async def _awaited(work: Awaitable[int]) -> int:
    return await work


async def _bound(stop: Stop, work: "asyncio.Task[int]", drain_s: float, force_s: float) -> None:
    await stop.asked.wait()
    log = logger()
    log.info("stopping", why=stop.why, drain_s=drain_s)
    if not await _ended(work, stop.forced, drain_s):
        stop.force(f"{stop.why}, not ended after {drain_s} s")
    if await _ended(work, None, force_s):
        return
    log.warning("stop_forced", why=stop.why)
    work.cancel()
    if await _ended(work, None, force_s):
        return
    log.error("stop_abandoned", why="main did not end when cancelled")
    sys.stderr.flush()
    os._exit(EXIT_TERMINATED)


async def _ended(work: "asyncio.Task[int]", unless: asyncio.Event | None, timeout_s: float) -> bool:
    """Waits for the end of the work. Returns False after the timeout, or when `unless` is set."""
    waits: set[asyncio.Task[Any]] = {work}
    cut: asyncio.Task[Any] | None = None
    if unless is not None:
        waiting: Coroutine[Any, Any, Any] = unless.wait()
        cut = asyncio.get_running_loop().create_task(waiting, name="stop-forced")
        waits.add(cut)
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if cut is not None:
            cut.cancel()
    return work.done()
