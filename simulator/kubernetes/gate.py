"""The connection to a cluster's API, which can be cut: connections are reset, or nothing is answered."""

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web


class Cut(StrEnum):
    NONE = "none"
    RESET = "reset"
    """Connections are dropped, running watches too; new ones end without an answer."""
    SILENCE = "silence"
    """Connections stay, and nothing is answered until the cut is over."""


class Gate:
    def __init__(self) -> None:
        self.cut = Cut.NONE
        self._open = asyncio.Event()
        self._open.set()
        self._transports: set[asyncio.Transport] = set()

    def set(self, cut: Cut) -> None:
        self.cut = cut
        if cut is Cut.NONE:
            self._open.set()
            return
        self._open.clear()
        if cut is Cut.RESET:
            for transport in tuple(self._transports):
                transport.abort()

    async def enter(self, request: "web.Request") -> bool:
        """Waits while the cut is `SILENCE`; returns True if the request may be answered."""
        await self.clear()
        if self.cut is Cut.NONE and request.transport is not None:
            self._transports.add(request.transport)
            return True
        if request.transport is not None:
            request.transport.abort()
        return False

    def leave(self, request: "web.Request") -> None:
        if request.transport is not None:
            self._transports.discard(request.transport)

    async def clear(self) -> None:
        """Waits while the cut is `SILENCE`."""
        while self.cut is Cut.SILENCE:
            await self._open.wait()
