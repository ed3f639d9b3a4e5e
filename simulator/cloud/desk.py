"""Where the APIs put their questions to the core: one question, one answer, and a look at how things are."""

import asyncio
from itertools import count

from runtime.clock import Clock
from runtime.role import RoleLoop
from simulator.cloud.model.effects import Effect
from simulator.cloud.model.events import Asked, Event
from simulator.cloud.model.requests import Outcome, Request
from simulator.cloud.model.state import Cloud
from simulator.cloud.shell import CloudShell

ANSWER_S = 30.0


class Desk:
    def __init__(self, loop: RoleLoop[Cloud, Event, Effect], shell: CloudShell, clock: Clock) -> None:
        self._loop = loop
        self._shell = shell
        self._clock = clock
        self._numbers = count(1)
        self._epoch_s = clock.wall_s() - clock.monotonic_s()

    @property
    def cloud(self) -> Cloud:
        return self._loop.state

    @property
    def now_s(self) -> float:
        return self._clock.monotonic_s()

    def wall_s(self, at_s: float) -> float:
        """Unix seconds of a time of the core: the same each time, as equal times must stay equal."""
        return self._epoch_s + at_s

    def core_s(self, unix_s: float) -> float:
        """The core's time of Unix seconds."""
        return unix_s - self._clock.wall_s() + self._clock.monotonic_s()

    async def ask(self, request: Request) -> Outcome:
        number = next(self._numbers)
        answer = self._shell.expect(number)
        try:
            self._loop.post(Asked(self._clock.monotonic_s(), number, request))
            async with asyncio.timeout(ANSWER_S):
                return await answer
        finally:
            self._shell.forget(number)
