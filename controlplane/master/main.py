"""From settings to a running master, and in order back to nothing. Jobs outlive it: the next master adopts them."""

import asyncio
import contextlib
import os
import socket
import sys
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from pathlib import Path

from controlplane.capacity.capacity import Capacity
from controlplane.master.api import ApiServer, open_listener
from controlplane.master.leader import take_over
from controlplane.master.master import Master
from controlplane.master.settings import MasterSettings, check, store_place
from messages import subjects
from runtime.bus import Bus
from runtime.clock import SystemClock
from runtime.logs import logger
from runtime.process import EXIT_SUPERSEDED, Stop
from runtime.waiting import first_of

START_PATIENCE_S = 60.0
CALL_TIMEOUT_S = 10.0
_DAY_S = 86_400.0


async def main(settings: MasterSettings, stop: Stop) -> int:
    check(settings)
    # Before anything is taken over: a second master started by mistake must fail without harm.
    with contextlib.closing(open_listener(settings.api_host, settings.api_port)) as listener:
        while True:
            code = await _lead(settings, listener, stop)
            if code is not None:
                return code
            logger().warning("master_starts_anew", why="the bus has lost its data")


async def _lead(settings: MasterSettings, listener: socket.socket, stop: Stop) -> int | None:
    """None: to be done again, since the bus no longer knows who leads."""
    bus = await Bus.connect(settings.bus)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bus.run(), name="bus")
            master = await _unless(stop, tasks.create_task(_start(bus, settings), name="start"))
            code = await _serve(master, listener, settings, stop) if master is not None else 0
            await bus.drain(settings.drain_s)
        return code
    finally:
        await bus.close()


async def _start(bus: Bus, settings: MasterSettings) -> Master:
    """Patient, since the bus may be away just now; then this is the master."""
    keep_s = settings.keep_days * _DAY_S
    for name, taken, max_bytes in (
        (subjects.EVENTS_STREAM, subjects.EVENTS_STREAM_SUBJECTS, settings.events_max_bytes),
        (subjects.LOGS_STREAM, subjects.LOGS_STREAM_SUBJECTS, settings.logs_max_bytes),
    ):
        await bus.ensure_stream(name, taken, max_bytes, keep_s, timeout_s=START_PATIENCE_S)
    clock = SystemClock()
    patient = await bus.bucket(subjects.STATE_BUCKET, timeout_s=START_PATIENCE_S)
    epoch = await take_over(bus, patient, clock)
    bucket = await bus.bucket(subjects.STATE_BUCKET, timeout_s=CALL_TIMEOUT_S)
    place = store_place(settings)
    return Master(bus, bucket, patient, place, clock, epoch, version("tradewind"), settings.keep_jobs)


async def _serve(master: Master, listener: socket.socket, settings: MasterSettings, stop: Stop) -> int | None:
    server = ApiServer(master, listener.dup(), settings.api_token)
    started = asyncio.Event()
    try:
        async with _capacity(master, settings) as master.capacity, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(master.run(started), name="master")
            await first_of(started, stop.asked, master.superseded, master.bereft)
            if started.is_set():
                await server.start()
                url = f"http://{settings.api_host}:{server.port}"
                logger().info("api_listening", url=url, jobs=len(master.jobs))
            await first_of(stop.asked, master.superseded, master.bereft)
            await server.close()
            await master.drain(settings.drain_s)
            running.cancel()
    finally:
        await server.close()
    if not master.superseded.is_set():
        return None if master.bereft.is_set() and not stop.asked.is_set() else 0
    print(f"Error: another master took over: {master.superseded_why}", file=sys.stderr)
    return EXIT_SUPERSEDED


def _capacity(master: Master, settings: MasterSettings) -> AbstractAsyncContextManager[Capacity | None]:
    if not settings.fleet:
        return contextlib.nullcontext()
    # The clients of clouds and of Kubernetes take a second to import, which a master without a fleet need not spend.
    from controlplane.bootstrap.settings import Secrets
    from controlplane.capacity.provider import provided

    secrets = Secrets(nats_url=settings.pods_nats_url or settings.bus.url)
    return provided(Path(settings.fleet), os.environ, secrets, SystemClock(), master.announce, master.place)


async def _unless(stop: Stop, work: "asyncio.Task[Master]") -> Master | None:
    """None if the process was asked to end first."""
    stopped = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
    if not work.done():
        work.cancel()
        return None
    return await work
