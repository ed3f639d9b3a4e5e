"""A host that the agent does not start and cannot signal: the other container of the pod.

Its pids mean nothing to the agent, because each container has its own. The host ends everything that it forked when the
connection ends, and it is gone when it closes the connection.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.worker.host_connection import Conversation, Hear, HostEnded, Streams, take_first
from agents.worker.leftovers import WorkerFolder
from agents.worker.sockets import allow_all_users, is_short
from messages.labels import HOST_SOCKET
from runtime.errors import UserError
from tradewind.protocol.host import MESSAGE_LIMIT_BYTES

GONE_S = 10.0
"""Seconds until the connection of an abandoned host is aborted. Such a host ends its trainers within 7 s."""


@dataclass(frozen=True, slots=True)
class HostContainer:
    env: Mapping[str, str]
    """Variables of the trainers in addition to the container's environment."""
    within_s: float
    """Seconds until the host must connect. Its image may have to be pulled first."""
    warm_s: float


def socket_path(folder: Path) -> Path:
    """Returns the socket at which the host of a worker with this folder finds its agent."""
    path = folder / HOST_SOCKET
    if not is_short(path):
        raise UserError(f"{path} is too long for a socket", "give a shorter folder with --run-dir")
    return path


class ExternalHost(Conversation):
    def __init__(self, container: HostContainer, folder: WorkerFolder, hear: Hear) -> None:
        super().__init__(hear, container.warm_s)
        self._within_s = container.within_s
        self._path = socket_path(folder.path)
        self._abandoned = asyncio.Event()

    async def run(self) -> str:
        try:
            async with asyncio.TaskGroup() as tasks:
                came: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()
                self._path.unlink(missing_ok=True)
                server = await asyncio.start_unix_server(take_first(came), str(self._path), limit=MESSAGE_LIMIT_BYTES)
                allow_all_users(self._path)
                async with server:
                    streams = await self._first(came)
                    tasks.create_task(self._limit_warming(), name="host/warming")
                    await self._converse(*streams)
                raise HostEnded(self._refused or "closed the connection")
        except* HostEnded as ended:
            why = str(ended.exceptions[0])
        finally:
            self._path.unlink(missing_ok=True)
        self._gone.set()
        return why

    async def _first(self, came: "asyncio.Future[Streams]") -> Streams:
        async with asyncio.TaskGroup() as tasks:
            leaving = tasks.create_task(self._abandoned.wait(), name="host/given-up")
            either: set[asyncio.Future[Any]] = {came, leaving}
            await asyncio.wait(either, timeout=self._within_s, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
        if not came.done():
            came.cancel()
            raise HostEnded(self._refused or f"did not connect within {self._within_s:g} s")
        return came.result()

    def _give_up(self, why: str) -> None:
        self._refused = self._refused or why
        self._abandoned.set()
        writer = self._writer
        if writer is None or writer.is_closing():
            return
        if writer.can_write_eof():
            writer.write_eof()
        asyncio.get_running_loop().call_later(GONE_S, writer.transport.abort)

    def _on_forked(self, pid: int) -> None:
        pass

    def _on_exited(self, pid: int) -> None:
        pass
