"""The main function of a worker-agent (`tradewind worker`)."""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from agents.worker.agent import Hands, work
from agents.worker.containment import Containment
from agents.worker.events import BusBack, BusLost, WorkerEvent
from agents.worker.external_host import HostContainer, socket_path
from agents.worker.host import HostCommand, find_host_file
from agents.worker.leftovers import WORKER_VARIABLE, claim
from agents.worker.settings import WorkerSettings
from agents.worker.state import WorkerIdentity
from agents.worker.stored import read_launch, read_submitted_at
from agents.worker.terminal import Echo
from agents.worker.trainer_socket import socket_for
from messages.ids import ClusterName, JobName, WorkerId
from messages.subjects import STATE_BUCKET
from runtime.bus import Bucket
from runtime.clock import SystemClock
from runtime.first_connection import connect_when_up
from runtime.inbox import Inbox, posting_bus_changes
from runtime.process import Stop
from runtime.settings import bus_settings_of
from tradewind.protocol.variables import TRAINER_SOCKET

DRAIN_AFTER_NOTICE_S = 30.0
"""Seconds after a notice for the grace of trainers and the last messages."""
BUS_DRAIN_S = 3.0


def drain_s(settings: WorkerSettings) -> float:
    """Returns the seconds that an agent may take to end after SIGTERM."""
    return settings.notice_s + DRAIN_AFTER_NOTICE_S


async def main(settings: WorkerSettings, stop: Stop, *, alone: bool = False) -> int:
    """Runs the agent. `alone`: this process has no descendants but the job's, so it kills all of them at its end."""
    uid = settings.uid or f"w{secrets.token_hex(4)}"
    identity = _identity(settings, WorkerId(f"{uid}-{secrets.token_hex(2)}"))
    host_file = None if settings.external_host else find_host_file(settings.host_file)
    if settings.external_host:
        socket_path(Path(settings.run_dir) / uid)
    folder = await claim(Path(settings.run_dir), uid, identity.worker)
    try:
        if alone and not settings.external_host:
            folder.contain(Containment(identity.worker, use_cgroup=settings.cgroup))
        inbox = Inbox[WorkerEvent]()
        on_change = posting_bus_changes(inbox, SystemClock(), BusBack, BusLost)
        bus = await connect_when_up(
            bus_settings_of(settings, f"worker/{identity.worker}"), stop.asked, on_change, give_up_s=settings.orphan_s
        )
        if bus is None:
            return 0
        try:
            bucket = await bus.bucket(STATE_BUCKET)
            identity = replace(identity, submitted_at=await read_submitted_at(bucket, identity.job))
            async with socket_for(folder.path, elsewhere=settings.external_host) as socket:
                own_env = {WORKER_VARIABLE: identity.worker, TRAINER_SOCKET: str(socket)}
                command = await _host_command(settings, identity, own_env, host_file, bucket)
                with _echo(settings) as echo:
                    hands = Hands(identity, bus, bucket, folder, command, inbox, socket, echo)
                    return await work(settings, hands, stop)
        finally:
            await bus.drain(BUS_DRAIN_S)
    finally:
        folder.remove()


async def _host_command(
    settings: WorkerSettings,
    identity: WorkerIdentity,
    own_env: Mapping[str, str],
    host_file: Path | None,
    bucket: Bucket,
) -> HostCommand | HostContainer:
    if host_file is None:
        return HostContainer(own_env, settings.host_within_s, settings.warm_s)
    launch = await read_launch(bucket, identity.job)
    named = settings.python or (launch.python if launch is not None else None)
    given = launch.host_env if launch is not None else {}
    env = {**os.environ, **given, **own_env}
    return HostCommand(named or sys.executable, host_file, env, settings.warm_s)


def _identity(settings: WorkerSettings, worker: WorkerId) -> WorkerIdentity:
    return WorkerIdentity(
        worker=worker,
        cluster=ClusterName(settings.cluster),
        job=JobName(settings.job),
        slots=settings.slots,
        region=settings.region,
        zone=settings.zone,
        node=settings.node,
        address=settings.address,
        pid=os.getpid(),
    )


@contextlib.contextmanager
def _echo(settings: WorkerSettings) -> Iterator[Echo | None]:
    if not settings.echo:
        yield None
        return
    echo = Echo()
    try:
        yield echo
    finally:
        echo.close()
