"""The hands of the core: answers go to who asked, requests go to the regions."""

import asyncio
from collections.abc import Awaitable, Mapping

from runtime.clock import Clock
from runtime.logs import logger
from simulator.cloud.model.effects import Answer, Effect, TellRegion
from simulator.cloud.model.events import Event, RegionFailed, RegionObeyed
from simulator.cloud.model.requests import Outcome
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

    async def _tell(self, told: TellRegion) -> Event:
        request = told.request
        try:
            reply = await self._regions[request.region].tell(request)
        except RegionTrouble as trouble:
            self._log.warning("region_failed", region=request.region, what=type(request).__name__, why=str(trouble))
            return RegionFailed(self._clock.monotonic_s(), told.number, request, str(trouble))
        return RegionObeyed(self._clock.monotonic_s(), told.number, request, reply.endpoint, reply.ca, reply.drained)
