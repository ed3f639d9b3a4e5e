"""The page where whoever keeps accounts reads the prices of the moment."""

from aiohttp import web

from simulator.cloud.desk import Desk
from simulator.cloud.inventory import prices
from simulator.cloud.replies import reply


class PricesPage:
    def __init__(self, desk: Desk, speed: float) -> None:
        self._desk = desk
        self._speed = speed

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/prices", self._prices)]

    async def _prices(self, request: web.Request) -> web.Response:
        return reply(prices(self._desk.cloud, self._speed))
