"""Runs a term of leadership, until the process is asked to end or loses the lease.

A term has its own connection to the bus, which ends with it: messages that a disconnected leader still queues are never
sent.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import msgspec

from controlplane.api.app import ApiServer
from controlplane.capacity.interface import JobCapacity, NoCapacity, OnPlacement
from controlplane.clouds.spec import Fleet
from controlplane.jobs.announcer import Announcer
from controlplane.jobs.backup import JobBackup
from controlplane.jobs.context import TermContext
from controlplane.lease.keeper import Leadership
from controlplane.ledger.books import Books
from controlplane.master.settings import MasterSettings, fleet_of, store_place
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
"""Seconds that bus calls may take at the start of a term. A term without a bus ends earlier, with its lease."""
CALL_TIMEOUT_S = 10.0
_DAY_S = 86_400.0


def prepare(settings: MasterSettings) -> None:
    """Imports what a leader needs, ahead of its first term: this takes seconds on a busy machine."""
    fleet = fleet_of(settings)
    if fleet is not None:
        from controlplane.capacity.leaders_fleet import prepare as prepare_capacity

        prepare_capacity(fleet)


async def serve(
    settings: MasterSettings, listener: socket.socket, leadership: Leadership, backup: JobBackup, stop: Stop
) -> None:
    """Leads until asked to end."""
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
    fleet = fleet_of(settings)
    about = Version(version("tradewind"), PROTOCOL, leadership.epoch, fleet.name if fleet is not None else "")

    async with _capacity(fleet, settings, context, books, lambda job, place: term.place(job, place)) as capacity:
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
        backup.end_term(term.registry.remembered() if started.is_set() else None)
        await server.close()


@asynccontextmanager
async def _capacity(
    fleet: Fleet | None, settings: MasterSettings, context: TermContext, books: Books, on_placement: OnPlacement
) -> AsyncIterator[JobCapacity]:
    if fleet is None:
        yield NoCapacity(context.clock)
        return
    # Imported here, because the clients of clouds and of Kubernetes take a second that only a fleet needs.
    from controlplane.bootstrap.settings import Secrets
    from controlplane.capacity.leaders_fleet import Leader, provided

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
    async with provided(fleet, os.environ, leader) as capacity:
        yield capacity
