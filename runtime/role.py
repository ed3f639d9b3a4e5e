"""The loop of every role: takes events, lets the core decide, and lets the shell perform the effects.

Quick effects are performed in the core's order. For a slow effect, the shell returns a coroutine: it runs as a task,
and its result is a new event.

Some cores decide on all waiting events at once. After such a decision the loop pauses for `PAUSE_SHARE` times as long
as the decision computed, at most `PAUSE_MOST_S`. So with a larger state more events share a decision, and other tasks
can run.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from runtime import causes
from runtime.causes import Cause
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.errors import Temporary

EVENTS_AT_MOST = 100_000
"""Maximum number of waiting events. A core that is further behind would act on an outdated world."""
BATCH_AT_MOST = 10_000
"""Maximum number of events in one decision, for cores that decide on many."""
PAUSE_LEAST_S = 0.002
"""Seconds of computing below which no pause follows a decision."""
PAUSE_SHARE = 3.0
"""Length of the pause, as a multiple of the CPU time of the decision."""
PAUSE_MOST_S = 0.1
"""Seconds, the longest pause after a decision. It ends earlier at the core's own deadline, and with the answer to a
slow effect, for which the core waits."""
LATE_S = 0.1
"""Seconds after which an event that waited, or a passed deadline, shows that this process is late."""

State = TypeVar("State")
Event = TypeVar("Event")
Effect = TypeVar("Effect")
Event_co = TypeVar("Event_co", covariant=True)
Effect_contra = TypeVar("Effect_contra", contravariant=True)


class Shell(Protocol[Event_co, Effect_contra]):
    def perform(self, effect: Effect_contra) -> Awaitable[Event_co | None] | None:
        """Performs the effect at once and returns None, or returns a coroutine that the loop runs as a task."""


class Overrun(Temporary):
    """Events come faster than the core decides. No event may be lost, so the process ends, and the next one starts
    from the records."""


class Waiting(NamedTuple, Generic[Event]):
    event: Event
    cause: Cause | None
    since_s: float


class RoleLoop(Generic[State, Event, Effect]):
    def __init__(
        self,
        name: str,
        state: State,
        decide: Callable[..., Decision[State, Effect]],
        shell: Shell[Event, Effect],
        tick: Callable[[float], Event],
        clock: Clock,
        observers: Sequence[Callable[[Sequence[Event], Decision[State, Effect]], None]] = (),
        *,
        batch_at_most: int = 1,
        behind: Callable[[float], Event] | None = None,
    ) -> None:
        """`decide` takes the state and up to `batch_at_most` events. `behind` creates the event that tells the core
        that the loop is late."""
        self.state = state
        self._name = name
        self._decide = decide
        self._shell = shell
        self._tick = tick
        self._clock = clock
        self._observers = tuple(observers)
        self._batch_at_most = batch_at_most
        self._behind = behind
        self._events: asyncio.Queue[Waiting[Event]] = asyncio.Queue(EVENTS_AT_MOST)
        self._answered = asyncio.Event()
        """Set while the answer to a slow effect waits."""
        self._overrun = False
        self._started = 0

    def post(self, event: Event) -> None:
        """Adds an event with the current cause. Only callbacks of this event loop may call this."""
        try:
            self._events.put_nowait(Waiting(event, causes.current(), self._clock.monotonic_s()))
        except asyncio.QueueFull:
            self._overrun = True

    async def run(self) -> None:
        """Runs until cancelled, then cancels slow effects too. Raises `Overrun` in an exception group."""
        wake_at_s: float | None = self._clock.monotonic_s()
        paused_s = 0.0
        async with asyncio.TaskGroup() as slow:
            while True:
                batch = await self._next(wake_at_s)
                if self._overrun:
                    raise Overrun(f"{self._name} cannot keep up: {EVENTS_AT_MOST} events wait to be decided")
                began_s, began_cpu_s = self._clock.monotonic_s(), time.thread_time()
                late_s = self._late_s(batch, wake_at_s, began_s) - paused_s
                behind = [self._behind(began_s)] if self._behind is not None and late_s > LATE_S else []
                events = [*behind, *(each.event for each in batch)]
                decision = self._decide(self.state, *events)
                self.state = decision.state
                wake_at_s = decision.wake_at_s
                with causes.caused_by(_common_cause(batch)):
                    self._act(events, decision, slow)
                paused_s = await self._yield(began_s, time.thread_time() - began_cpu_s, wake_at_s)

    def _act(self, events: Sequence[Event], decision: Decision[State, Effect], slow: asyncio.TaskGroup) -> None:
        for observe in self._observers:
            observe(events, decision)
        for effect in decision.effects:
            work = self._shell.perform(effect)
            if work is not None:
                self._started += 1
                name = f"{self._name}/{type(effect).__name__}-{self._started}"
                slow.create_task(self._return(work), name=name)

    async def _yield(self, began_s: float, computed_s: float, wake_at_s: float | None) -> float:
        """Pauses. Returns the seconds from the start of the decision to the end of the pause."""
        now_s = self._clock.monotonic_s()
        took_s = now_s - began_s
        if self._batch_at_most == 1:
            return took_s
        if computed_s >= PAUSE_LEAST_S:
            left_s = PAUSE_MOST_S if wake_at_s is None else max(0.0, wake_at_s - now_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(PAUSE_SHARE * computed_s, PAUSE_MOST_S, left_s)):
                    await self._answered.wait()
            await asyncio.sleep(0)
            return self._clock.monotonic_s() - began_s
        if not self._events.empty():
            await asyncio.sleep(0)
        return took_s

    def _late_s(self, batch: Sequence[Waiting[Event]], wake_at_s: float | None, now_s: float) -> float:
        return now_s - min(batch[0].since_s, now_s if wake_at_s is None else wake_at_s)

    async def _next(self, wake_at_s: float | None) -> list[Waiting[Event]]:
        first = await self._first(wake_at_s)
        batch = [first]
        while len(batch) < self._batch_at_most and not self._events.empty():
            batch.append(self._events.get_nowait())
        if self._events.empty():
            self._answered.clear()
        return batch

    async def _first(self, wake_at_s: float | None) -> Waiting[Event]:
        if not self._events.empty() or wake_at_s is None:
            return await self._events.get()
        try:
            async with asyncio.timeout(max(0.0, wake_at_s - self._clock.monotonic_s())):
                return await self._events.get()
        except TimeoutError:
            now_s = self._clock.monotonic_s()
            return Waiting(self._tick(now_s), None, now_s)

    async def _return(self, work: Awaitable[Event | None]) -> None:
        event = await work
        if event is not None:
            self.post(event)
            self._answered.set()


def _common_cause(batch: Sequence[Waiting[Event]]) -> Cause | None:
    """Returns the cause of all events; None if they have different causes."""
    reported = {each.cause for each in batch}
    return reported.pop() if len(reported) == 1 else None
