import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest_asyncio

from controlplane.stores.protocol import Met, Waiting
from controlplane.stores.servers import StorePlace, StoreServers
from messages.ids import JobName
from runtime.children import free_port


@dataclass
class RunningStores:
    servers: StoreServers
    lost: list[JobName] = field(default_factory=list)
    ranks: list[tuple[JobName, Waiting | Met]] = field(default_factory=list)


def a_place() -> StorePlace:
    first = free_port()
    return StorePlace("127.0.0.1", "127.0.0.1", first, min(first + 50, 65_535))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores() -> AsyncIterator[RunningStores]:
    running = RunningStores(
        StoreServers(
            a_place(),
            lambda job: running.lost.append(job),
            lambda job, reported: running.ranks.append((job, reported)),
        )
    )
    task = asyncio.create_task(running.servers.run(), name="stores")
    try:
        yield running
    finally:
        task.cancel()
        await asyncio.wait({task})
