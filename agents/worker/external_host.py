"""A host that somebody else starts: the other container of the pod. It comes in its own time, and cannot be signalled.

Nothing of its processes is known here either, since a container has numbers of its own. A host ends everything that it
forked when the connection ends, and is gone when its side of the connection is.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.worker.host_connection import Conversation, Hear, HostEnded, Streams, take_first
from agents.worker.leftovers import WorkerFolder
from runtime.errors import UserError
from tradewind.protocol.host import MESSAGE_LIMIT_BYTES

SOCKET = "host.sock"
SOCKET_PATH_BYTES = 107
GONE_S = 10.0
"""A host that was given up ends its trainers within 7 s."""


@dataclass(frozen=True, slots=True)
class HostContainer:
    env: Mapping[str, str]
    """What its trainers have besides the environment of the container."""
    within_s: float
    """It has to come so soon: its image may have to be pulled first."""
    warm_s: float


def socket_path(folder: Path) -> Path:
    """Where the host of a worker with this folder looks for its agent."""
    path = folder / SOCKET
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise UserError(f"{path} is too long for a socket", "give a shorter folder with --run-dir")
    return path


class ExternalHost(Conversation):
    def __init__(self, container: HostContainer, folder: WorkerFolder, hear: Hear) -> None:
        super().__init__(hear, container.warm_s)
        self._within_s = container.within_s
        self._path = socket_path(folder.path)
        self._given_up = asyncio.Event()

    async def run(self) -> str:
        try:
            async with asyncio.TaskGroup() as tasks:
                came: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()
                self._path.unlink(missing_ok=True)
                server = await asyncio.start_unix_server(take_first(came), str(self._path), limit=MESSAGE_LIMIT_BYTES)
                self._let_others_in()
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
            leaving = tasks.create_task(self._given_up.wait(), name="host/given-up")
            either: set[asyncio.Future[Any]] = {came, leaving}
            await asyncio.wait(either, timeout=self._within_s, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
        if not came.done():
            came.cancel()
            raise HostEnded(self._refused or f"did not come within {self._within_s:g} s")
        return came.result()

    def _let_others_in(self) -> None:
        """The host's image may have another user than ours; the pod is what keeps others out."""
        self._path.parent.chmod(0o711)
        self._path.chmod(0o666)

    def _give_up(self, why: str) -> None:
        self._refused = self._refused or why
        self._given_up.set()
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
