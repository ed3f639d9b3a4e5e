"""The one loop that every role runs: events come in, the core decides, the shell performs.

Quick effects are performed in the order the core gave them. A slow one is handed back as a coroutine: it runs as a task
of its own, and what it returns comes back as an event.

Some cores decide on all waiting events at once. After such a decision the loop pauses for as long as it took, at most
`PAUSE_MOST_S`: the larger a state is, the more events share a decision, and other tasks always have their turn.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from runtime import causes
from runtime.causes import Cause
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.errors import Temporary

EVENTS_AT_MOST = 100_000
"""Events that wait. A core that is so far behind acts on a world that is long gone."""
BATCH_AT_MOST = 2000
"""Events that a core of many decides on at once."""
PAUSE_LEAST_S = 0.002
"""Decisions that take less are followed by no pause."""
PAUSE_MOST_S = 0.05
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
        """Do it now and return None, or return a coroutine to be run beside the loop."""


class Overrun(Temporary):
    """Events come faster than they are decided. None may be missed, so its process ends, and the next one begins from
    what is recorded."""


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
        behind: Callable[[float, float], Event] | None = None,
    ) -> None:
        """`decide` takes the state and as many events as `batch_at_most` allows. `behind` makes the event of a loop
        that is late, of the time and by how many seconds."""
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
        """From callbacks of this event loop. The current cause is carried with the event."""
        try:
            self._events.put_nowait(Waiting(event, causes.current(), self._clock.monotonic_s()))
        except asyncio.QueueFull:
            self._overrun = True

    async def run(self) -> None:
        """Until cancelled; slow effects that are still running are cancelled with it. `Overrun` comes in a group."""
        wake_at_s: float | None = self._clock.monotonic_s()
        paused_s = 0.0
        async with asyncio.TaskGroup() as slow:
            while True:
                batch = await self._next(wake_at_s)
                if self._overrun:
                    raise Overrun(f"{self._name} cannot keep up: {EVENTS_AT_MOST} events wait to be decided")
                began_s = self._clock.monotonic_s()
                late_s = self._late_s(batch, wake_at_s, began_s) - paused_s
                behind = [self._behind(began_s, late_s)] if self._behind is not None and late_s > LATE_S else []
                events = [*behind, *(each.event for each in batch)]
                decision = self._decide(self.state, *events)
                self.state = decision.state
                wake_at_s = decision.wake_at_s
                with causes.caused_by(_common_cause(batch)):
                    self._act(events, decision, slow)
                paused_s = await self._yield(began_s, wake_at_s)

    def _act(self, events: Sequence[Event], decision: Decision[State, Effect], slow: asyncio.TaskGroup) -> None:
        for observe in self._observers:
            observe(events, decision)
        for effect in decision.effects:
            work = self._shell.perform(effect)
            if work is not None:
                self._started += 1
                name = f"{self._name}/{type(effect).__name__}-{self._started}"
                slow.create_task(self._return(work), name=name)

    async def _yield(self, began_s: float, wake_at_s: float | None) -> float:
        """Seconds from the start of a decision to the end of the pause after it."""
        now_s = self._clock.monotonic_s()
        took_s = now_s - began_s
        if self._batch_at_most == 1:
            return took_s
        if took_s >= PAUSE_LEAST_S:
            left_s = PAUSE_MOST_S if wake_at_s is None else max(0.0, wake_at_s - now_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(took_s, PAUSE_MOST_S, left_s)):
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
    """None where several messages led to a decision: any of them could have."""
    told = {each.cause for each in batch}
    return told.pop() if len(told) == 1 else None
