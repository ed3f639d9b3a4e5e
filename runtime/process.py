"""From the first line to the exit code: event loop, signals, a bounded drain, errors as sentences.

The first SIGTERM, SIGINT or SIGHUP asks `main` to end, the second forces it. Whoever does not end in time is cancelled,
and whoever cannot even be cancelled does not hold the process.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

from runtime.errors import BusRefused, Temporary, TradewindError, UserError
from runtime.logs import logger
from runtime.plain_text import plain_lines

EXIT_FAILED = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
_KNOWN = (UserError, Temporary, BusRefused)


class Stop:
    """Asks a process to end. `asked` is the polite request, `forced` the last word."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()
        self.signal: signal.Signals | None = None
        """The first signal that came, if it was a signal."""
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


def run(main: Callable[[Stop], Awaitable[int]], *, drain_s: float = 30.0, force_s: float = 5.0) -> int:
    """The exit code for `sys.exit`.

    After a request to end, `main` has `drain_s` to return; after a second one `force_s`. Then it is cancelled, and
    `force_s` later the process ends whatever still runs.
    """
    gc.freeze()  # else a full collection goes through all that is imported by now, and answers wait for it
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_guarded(main, drain_s, force_s))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BaseExceptionGroup as group:
        known = known_error(group)
        if known is None:
            raise
        return tell(known)
    except _KNOWN as error:
        return tell(error)


def leave(code: int) -> NoReturn:
    """Instead of `sys.exit`, for who leaves while others on the machine train: taking an interpreter apart costs them
    a tenth of a second of a core, and the system does it better."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def tell(error: TradewindError) -> int:
    """One sentence on standard error, what to try, and the exit code for it."""
    if not isinstance(error, UserError):
        print(f"Error: {_indented(str(error))}", file=sys.stderr)
        return EXIT_FAILED
    print(f"Error: {_indented(error.sentence)}", file=sys.stderr)
    for problem in error.problems:
        print(f"  {_indented(problem)}", file=sys.stderr)
    if error.hint:
        print(f"Try: {_indented(error.hint)}", file=sys.stderr)
    return EXIT_USER_ERROR


def _indented(text: str) -> str:
    """Part of it may come from outside: no line of it begins where ours do."""
    return "\n    ".join(plain_lines(text))


def known_error(group: BaseExceptionGroup[BaseException]) -> TradewindError | None:
    """The first of the group that can be told in a sentence, unless there is also one that cannot."""
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
    """A hang-up asks too, unless whoever started us wants it ignored."""
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
    """Whether the work ended in time; `unless` cuts the wait short."""
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
