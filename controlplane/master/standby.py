"""The API of a standby: its health, and the URL of the leader."""

import socket
from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from controlplane.api.access import guard
from controlplane.api.responses import json_answer
from controlplane.jobs.errors import BUS_AWAY
from messages.api import Health, Problem
from messages.records import LeaseRecord

RETRY_AFTER_S = 1


class StandbyServer:
    """Async context that serves on an open socket and closes it."""

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        leader: Callable[[], LeaseRecord | None],
        connected: Callable[[], bool],
    ) -> None:
        self._listener = listener
        self._leader = leader
        self._connected = connected
        app = web.Application(middlewares=[guard(token)])
        app.add_routes([web.get("/healthz", self._health), web.route("*", "/{path:.*}", self._refuse)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, auto_decompress=False)

    async def __aenter__(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()

    async def __aexit__(self, *_raised: object) -> None:
        await self._runner.cleanup()
        self._listener.close()

    async def _health(self, _request: web.Request) -> web.Response:
        connected = self._connected()
        why = describe_standby(self._leader(), connected=True) if connected else BUS_AWAY
        health = Health(ok=connected, why=why, jobs=0, clusters=0, dropped={}, role="standby")
        return json_answer(health, HTTPStatus.OK if connected else HTTPStatus.SERVICE_UNAVAILABLE)

    async def _refuse(self, _request: web.Request) -> web.Response:
        connected = self._connected()
        leader = self._leader() if connected else None
        url = leader.url if leader is not None else ""
        hint = f"send the request to {url}" if url else "retry in a few seconds"
        problem = Problem(describe_standby(leader, connected=connected), hint, leader=url)
        answer = json_answer(problem, HTTPStatus.SERVICE_UNAVAILABLE)
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
        return answer


def describe_standby(leader: LeaseRecord | None, *, connected: bool) -> str:
    if not connected:
        return f"This master is a standby, and {BUS_AWAY}."
    if leader is None:
        return "This master is a standby, and no leader is known yet."
    where = f" at {leader.url}" if leader.url else ""
    return f"This master is a standby; the leader is {leader.holder.rpartition('/')[0]}{where}."
