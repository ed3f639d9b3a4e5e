"""Starts a master from its settings, and ends it in order. Jobs continue: the next leader takes them over."""

import asyncio
import contextlib
import sys

import msgspec

from controlplane.api.app import open_listener
from controlplane.master.candidate import Candidate
from controlplane.master.leading import prepare
from controlplane.master.settings import MasterSettings, check
from runtime.first_connection import connect_when_up
from runtime.process import Stop

SWITCH_S = 0.001
"""Seconds after which a computing thread lets another one run.

The thread of the lease then renews in 4 ms (p99) while the main loop computes; with Python's 5 ms it takes 16 ms.
"""


async def main(settings: MasterSettings, stop: Stop) -> int:
    check(settings)
    sys.setswitchinterval(SWITCH_S)
    # The listener comes first, so that a second master on the same machine fails without harm.
    with contextlib.closing(open_listener(settings.api_host, settings.api_port)) as listener:
        await asyncio.to_thread(prepare, settings)
        named = msgspec.structs.replace(settings.bus, name=f"candidate/{settings.bus.name}")
        bus = await connect_when_up(named, stop.asked)
        if bus is None:
            return 0
        try:
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(bus.run(), name="bus")
                candidate = Candidate(bus, listener, settings, stop)
                running = tasks.create_task(candidate.run(), name="candidate")
                await stop.wait()
                await candidate.idle.wait()
                running.cancel()
                await asyncio.wait({running})
                keeping.cancel()
        finally:
            await bus.close()
    return 0
