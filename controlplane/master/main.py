"""From settings to a running master, and in order back to nothing. Jobs outlive it: the next master adopts them."""

import asyncio
import contextlib
import sys
from importlib.metadata import version

from controlplane.master.api import ApiServer, open_listener
from controlplane.master.leader import take_over
from controlplane.master.master import Master
from controlplane.master.settings import MasterSettings, check, store_place
from messages import subjects
from runtime.bus import Bucket, Bus
from runtime.clock import SystemClock
from runtime.logs import logger
from runtime.process import Stop

EXIT_SUPERSEDED = 3
_DAY_S = 86_400.0


async def main(settings: MasterSettings, stop: Stop) -> int:
    check(settings)
    # Before anything is taken over: a second master started by mistake must fail without harm.
    with contextlib.closing(open_listener(settings.api_host, settings.api_port)) as listener:
        bus = await Bus.connect(settings.bus)
        try:
            bucket = await _prepare(bus, settings)
            clock = SystemClock()
            epoch = await take_over(bus, bucket, clock)
            master = Master(bus, bucket, store_place(settings), clock, epoch, version("tradewind"))
            server = ApiServer(master, listener, settings.api_token)
            return await _run(master, server, settings, stop)
        finally:
            await bus.close()


async def _prepare(bus: Bus, settings: MasterSettings) -> Bucket:
    keep_s = settings.keep_days * _DAY_S
    await bus.ensure_stream(subjects.EVENTS_STREAM, subjects.EVENTS_STREAM_SUBJECTS, settings.events_max_bytes, keep_s)
    await bus.ensure_stream(subjects.LOGS_STREAM, subjects.LOGS_STREAM_SUBJECTS, settings.logs_max_bytes, keep_s)
    return await bus.bucket(subjects.STATE_BUCKET)


async def _run(master: Master, server: ApiServer, settings: MasterSettings, stop: Stop) -> int:
    log = logger()
    started = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(master.bus.run(), name="bus")
            running = tasks.create_task(master.run(started), name="master")
            await started.wait()
            await server.start()
            log.info("api_listening", url=f"http://{settings.api_host}:{server.port}", jobs=len(master.jobs))
            await _either(stop.asked, master.superseded)
            await server.close()
            await master.drain(settings.drain_s)
            running.cancel()
            await asyncio.wait({running})
            await master.bus.drain(settings.drain_s)
    finally:
        await server.close()
    if not master.superseded.is_set():
        return 0
    print(f"Error: another master took over: {master.superseded_why}", file=sys.stderr)
    return EXIT_SUPERSEDED


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as waits:
        tasks = [waits.create_task(event.wait(), name="end-of-master") for event in (one, other)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
