"""Leads from the moment a master holds the lease until it is asked to end, or loses the lease and is cancelled.

A term has a connection to the bus of its own, which ends with it: what a leader that was cut off still had to say is
never said.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import msgspec

from controlplane.api.app import ApiServer
from controlplane.capacity.interface import JobCapacity, NoCapacity, OnPlacement
from controlplane.fleet.files import read_fleet
from controlplane.jobs.announcer import Announcer
from controlplane.jobs.backup import JobBackup
from controlplane.jobs.context import TermContext
from controlplane.lease.keeper import Leadership
from controlplane.ledger.books import Books
from controlplane.master.settings import MasterSettings, store_place
from controlplane.master.term import Term
from messages import subjects
from messages.api import Version
from messages.envelope import VERSION as PROTOCOL
from runtime.bus import Bucket, Bus
from runtime.clock import SystemClock
from runtime.logs import logger
from runtime.process import Stop
from runtime.waiting import first_of

PATIENCE_S = 60.0
"""Seconds for calls of the bus at the start: a term without it ends long before, with its lease."""
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
            await _make_streams(bus, settings)
            patient = await bus.bucket(subjects.STATE_BUCKET, timeout_s=PATIENCE_S)
            await backup.begin_term(patient)
            async with _term(bus, patient, settings, leadership) as term:
                await _lead(term, settings, listener, backup, stop)
            await bus.drain(settings.drain_s)
    finally:
        await bus.close()


async def _make_streams(bus: Bus, settings: MasterSettings) -> None:
    keep_s = settings.keep_days * _DAY_S
    for name, taken, max_bytes in (
        (subjects.EVENTS_STREAM, subjects.EVENTS_STREAM_SUBJECTS, settings.events_max_bytes),
        (subjects.LOGS_STREAM, subjects.LOGS_STREAM_SUBJECTS, settings.logs_max_bytes),
    ):
        await bus.ensure_stream(name, taken, max_bytes, keep_s, timeout_s=PATIENCE_S)


@asynccontextmanager
async def _term(bus: Bus, patient: Bucket, settings: MasterSettings, leadership: Leadership) -> AsyncIterator[Term]:
    bucket, clock = await bus.bucket(subjects.STATE_BUCKET, timeout_s=CALL_TIMEOUT_S), SystemClock()
    context = TermContext(bus, bucket, Announcer(bus, leadership.epoch), clock, leadership)
    books = Books(bucket, clock, leadership, catalog=lambda: capacity.advisor.list_prices())
    fleet = read_fleet(Path(settings.fleet)).name if settings.fleet else ""
    about = Version(version("tradewind"), PROTOCOL, leadership.epoch, fleet)

    async with _capacity(settings, context, books, lambda job, place: term.place(job, place)) as capacity:
        term = Term(context, patient, store_place(settings), books, capacity, about, settings.keep_jobs)
        yield term


async def _lead(term: Term, settings: MasterSettings, listener: socket.socket, backup: JobBackup, stop: Stop) -> None:
    server = ApiServer(term.service, listener.dup(), settings.api_token)
    started = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(term.run(started), name="term")
            await first_of(started, stop.asked)
            if started.is_set():
                await server.start()
                url = f"http://{settings.api_host}:{server.port}"
                logger().info("api_listening", url=url, jobs=len(term.registry.jobs))
            await stop.wait()
            await server.close()
            await term.drain(settings.drain_s)
            running.cancel()
    finally:
        backup.end_term(term.registry.stored() if started.is_set() else None)
        await server.close()


@asynccontextmanager
async def _capacity(
    settings: MasterSettings, context: TermContext, books: Books, on_placement: OnPlacement
) -> AsyncIterator[JobCapacity]:
    if not settings.fleet:
        yield NoCapacity(context.clock)
        return
    # The clients of clouds and of Kubernetes take a second to import, which a master without a fleet need not spend.
    from controlplane.bootstrap.settings import Secrets
    from controlplane.capacity.provider import Leader, provided

    secrets = Secrets(nats_url=settings.pods_nats_url or settings.bus.url)
    leader = Leader(
        context.clock,
        context.bucket,
        books,
        secrets,
        context.may_act,
        context.announce,
        on_placement,
        context.heard.heard_s,
    )
    async with provided(Path(settings.fleet), os.environ, leader) as capacity:
        yield capacity
