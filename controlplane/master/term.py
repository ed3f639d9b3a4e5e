"""One term of a master: from the moment it leads to the moment it was asked to end, or lost the lease and is cancelled.

A term has a connection to the bus of its own, which ends with it: what a leader that was cut off still had to say is
never said. Jobs go on; whoever leads next adopts them.
"""

import asyncio
import contextlib
import os
import socket
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from controlplane.lease.keeper import Leadership
from controlplane.master.api import ApiServer
from controlplane.master.backup import JobBackup
from controlplane.master.desk import Desk
from controlplane.master.master import Master
from controlplane.master.settings import MasterSettings, store_place
from messages import subjects
from runtime.bus import Bus
from runtime.clock import SystemClock
from runtime.logs import logger
from runtime.process import Stop
from runtime.waiting import first_of

if TYPE_CHECKING:
    from controlplane.capacity.capacity import Capacity

PATIENCE_S = 60.0
"""With the bus: a term without it ends long before, with its lease."""
CALL_TIMEOUT_S = 10.0
_DAY_S = 86_400.0


def prepare(settings: MasterSettings) -> None:
    """Loads what a leader needs: seconds on a busy machine, in which a lease that is held could not be renewed."""
    if settings.fleet:
        from controlplane.capacity.provider import prepare as prepare_capacity

        prepare_capacity(Path(settings.fleet))


async def serve(
    settings: MasterSettings, listener: socket.socket, leadership: Leadership, backup: JobBackup, stop: Stop
) -> None:
    """Until asked to end."""
    bus = await Bus.connect(msgspec.structs.replace(settings.bus, connect_timeout_s=PATIENCE_S))
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bus.run(), name="bus")
            master = await _begin(bus, settings, leadership, backup)
            await _lead(master, settings, listener, backup, stop)
            await bus.drain(settings.drain_s)
    finally:
        await bus.close()


async def _begin(bus: Bus, settings: MasterSettings, leadership: Leadership, backup: JobBackup) -> Master:
    keep_s = settings.keep_days * _DAY_S
    for name, taken, max_bytes in (
        (subjects.EVENTS_STREAM, subjects.EVENTS_STREAM_SUBJECTS, settings.events_max_bytes),
        (subjects.LOGS_STREAM, subjects.LOGS_STREAM_SUBJECTS, settings.logs_max_bytes),
    ):
        await bus.ensure_stream(name, taken, max_bytes, keep_s, timeout_s=PATIENCE_S)
    patient = await bus.bucket(subjects.STATE_BUCKET, timeout_s=PATIENCE_S)
    bucket = await bus.bucket(subjects.STATE_BUCKET, timeout_s=CALL_TIMEOUT_S)
    await backup.begin_term(patient)
    place = store_place(settings)
    return Master(bus, bucket, patient, place, SystemClock(), leadership, version("tradewind"), settings.keep_jobs)


async def _lead(
    master: Master, settings: MasterSettings, listener: socket.socket, backup: JobBackup, stop: Stop
) -> None:
    server = ApiServer(Desk(master), listener.dup(), settings.api_token)
    started = asyncio.Event()
    try:
        async with _capacity(master, settings) as master.capacity, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(master.run(started), name="master")
            await first_of(started, stop.asked)
            if started.is_set():
                await server.start()
                url = f"http://{settings.api_host}:{server.port}"
                logger().info("api_listening", url=url, jobs=len(master.jobs))
            await stop.wait()
            await server.close()
            await master.drain(settings.drain_s)
            running.cancel()
    finally:
        backup.end_term(master.kept() if started.is_set() else None)
        await server.close()


def _capacity(master: Master, settings: MasterSettings) -> "AbstractAsyncContextManager[Capacity | None]":
    if not settings.fleet:
        return contextlib.nullcontext()
    # The clients of clouds and of Kubernetes take a second to import, which a master without a fleet need not spend.
    from controlplane.bootstrap.settings import Secrets
    from controlplane.capacity.provider import Leader, provided
    from controlplane.fleet.files import read_fleet

    secrets = Secrets(nats_url=settings.pods_nats_url or settings.bus.url)
    master.fleet = read_fleet(Path(settings.fleet)).name
    leader = Leader(SystemClock(), master.bucket, master.books, secrets, master.may_act, master.announce, master.place)
    return provided(Path(settings.fleet), os.environ, leader)
