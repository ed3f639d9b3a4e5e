"""Performs the core's effects: answers go to the callers, requests go to the regions."""

import asyncio
from collections.abc import Awaitable, Mapping
from itertools import count

from runtime.clock import Clock
from runtime.logs import logger
from runtime.role import RoleLoop
from simulator.cloud.model.effects import Answer, Effect, TellRegion
from simulator.cloud.model.events import Asked, Event, RegionFailed, RegionObeyed
from simulator.cloud.model.requests import Outcome, Request
from simulator.cloud.model.state import Cloud
from simulator.cloud.regions import RegionClient, RegionTrouble


class CloudShell:
    def __init__(self, regions: Mapping[str, RegionClient], clock: Clock) -> None:
        self._regions = regions
        self._clock = clock
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._log = logger()

    def expect(self, number: int) -> "asyncio.Future[Outcome]":
        self._waiting[number] = asyncio.get_running_loop().create_future()
        return self._waiting[number]

    def forget(self, number: int) -> None:
        self._waiting.pop(number, None)

    def perform(self, effect: Effect) -> Awaitable[Event | None] | None:
        if isinstance(effect, TellRegion):
            return self._tell(effect)
        self._answer(effect)
        return None

    def _answer(self, answer: Answer) -> None:
        waiting = self._waiting.get(answer.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer.outcome)

    async def _tell(self, reported: TellRegion) -> Event:
        request = reported.request
        try:
            reply = await self._regions[request.region].tell(request)
        except RegionTrouble as trouble:
            self._log.warning("region_failed", region=request.region, what=type(request).__name__, why=str(trouble))
            return RegionFailed(self._clock.monotonic_s(), reported.number, request, str(trouble))
        return RegionObeyed(
            self._clock.monotonic_s(), reported.number, request, reply.endpoint, reply.ca, reply.drained
        )


ANSWER_S = 30.0


class CloudService:
    """Sends requests of the APIs to the core and waits for the answers; gives access to the state."""

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
        """Unix seconds of a time of the core; equal times give equal results."""
        return self._epoch_s + at_s

    def core_s(self, unix_s: float) -> float:
        """The core's time for Unix seconds."""
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
