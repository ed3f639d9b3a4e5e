"""The one loop that every role runs: an event comes in, the core decides, the shell performs.

Quick effects are performed in the order the core gave them. A slow one is handed back as a coroutine: it runs as a task
of its own, and what it returns comes back as an event.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from runtime import causes
from runtime.causes import Cause
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.errors import Temporary

EVENTS_AT_MOST = 100_000
"""That wait. A core that is so far behind acts on a world that is long gone."""

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


class RoleLoop(Generic[State, Event, Effect]):
    def __init__(
        self,
        name: str,
        state: State,
        decide: Callable[[State, Event], Decision[State, Effect]],
        shell: Shell[Event, Effect],
        tick: Callable[[float], Event],
        clock: Clock,
        observers: Sequence[Callable[[Event, Decision[State, Effect]], None]] = (),
    ) -> None:
        self.state = state
        self._name = name
        self._decide = decide
        self._shell = shell
        self._tick = tick
        self._clock = clock
        self._observers = tuple(observers)
        self._events: asyncio.Queue[tuple[Event, Cause | None]] = asyncio.Queue(EVENTS_AT_MOST)
        self._overrun = False
        self._started = 0

    def post(self, event: Event) -> None:
        """From callbacks of this event loop. The current cause is carried with the event."""
        try:
            self._events.put_nowait((event, causes.current()))
        except asyncio.QueueFull:
            self._overrun = True

    async def run(self) -> None:
        """Until cancelled; slow effects that are still running are cancelled with it. `Overrun` comes in a group."""
        wake_at_s: float | None = self._clock.monotonic_s()
        async with asyncio.TaskGroup() as slow:
            while True:
                event, cause = await self._next(wake_at_s)
                if self._overrun:
                    raise Overrun(f"{self._name} cannot keep up: {EVENTS_AT_MOST} events wait to be decided")
                decision = self._decide(self.state, event)
                self.state = decision.state
                wake_at_s = decision.wake_at_s
                with causes.caused_by(cause):
                    self._act(event, decision, slow)

    def _act(self, event: Event, decision: Decision[State, Effect], slow: asyncio.TaskGroup) -> None:
        for observe in self._observers:
            observe(event, decision)
        for effect in decision.effects:
            work = self._shell.perform(effect)
            if work is not None:
                self._started += 1
                name = f"{self._name}/{type(effect).__name__}-{self._started}"
                slow.create_task(self._return(work), name=name)

    async def _next(self, wake_at_s: float | None) -> tuple[Event, Cause | None]:
        if not self._events.empty() or wake_at_s is None:
            return await self._events.get()
        try:
            async with asyncio.timeout(max(0.0, wake_at_s - self._clock.monotonic_s())):
                return await self._events.get()
        except TimeoutError:
            return self._tick(self._clock.monotonic_s()), None

    async def _return(self, work: Awaitable[Event | None]) -> None:
        event = await work
        if event is not None:
            self.post(event)
