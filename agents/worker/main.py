"""`tradewind worker`: a worker-agent, from its settings to its exit code."""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from agents.worker.containment import Cage
from agents.worker.decide import decide
from agents.worker.effects import WorkerEffect
from agents.worker.events import BusBack, BusLost, NoticeCame, StopAsked, Ticked, WorkerEvent
from agents.worker.external_host import HostContainer, socket_path
from agents.worker.host import HostCommand, find_host_file
from agents.worker.leftovers import WORKER_VARIABLE, claim
from agents.worker.settings import WorkerSettings
from agents.worker.shell import Hands, WorkerShell
from agents.worker.state import WorkerIdentity, WorkerRules, WorkerState, new_worker
from agents.worker.stored import read_launch, read_submitted_at
from agents.worker.terminal import Echo
from agents.worker.trainer_socket import socket_for
from messages.ids import ClusterName, JobName, WorkerId
from messages.subjects import STATE_BUCKET
from runtime.bus import Bucket, BusSettings
from runtime.clock import SystemClock
from runtime.first_connection import connect_when_up
from runtime.inbox import Inbox, posting_bus_changes
from runtime.logs import logger
from runtime.process import Stop
from runtime.role import RoleLoop
from tradewind.protocol.variables import TRAINER_SOCKET

DRAIN_AFTER_NOTICE_S = 30.0
"""For the grace of trainers, and what is said last."""
FLUSH_S = 5.0
BUS_DRAIN_S = 3.0
FORCED_GRACE_S = 2.0


def drain_s(settings: WorkerSettings) -> float:
    """For `runtime.process.run`: how long an agent may take to end after SIGTERM."""
    return settings.notice_s + DRAIN_AFTER_NOTICE_S


async def main(settings: WorkerSettings, stop: Stop, *, alone: bool = False) -> int:
    """`alone`: nothing runs below this process but the job, so that whatever is left there at its end is killed."""
    uid = settings.uid or f"w{secrets.token_hex(4)}"
    identity = _identity(settings, WorkerId(f"{uid}-{secrets.token_hex(2)}"))
    host_file = None if settings.external_host else find_host_file(settings.host_file)
    if settings.external_host:
        socket_path(Path(settings.run_dir) / uid)
    folder = await claim(Path(settings.run_dir), uid, identity.worker)
    try:
        if alone and not settings.external_host:
            folder.contain(Cage(identity.worker, use_cgroup=settings.cgroup))
        inbox = Inbox[WorkerEvent]()
        on_change = posting_bus_changes(inbox, SystemClock(), BusBack, BusLost)
        bus = await connect_when_up(
            _bus_settings(settings, identity), stop.asked, on_change, give_up_s=settings.orphan_s
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
                    return await _work(settings, hands, stop)
        finally:
            await bus.drain(BUS_DRAIN_S)
    finally:
        folder.remove()


async def _work(settings: WorkerSettings, hands: Hands, stop: Stop) -> int:
    log = logger(worker=hands.identity.worker)
    async with asyncio.TaskGroup() as tasks, contextlib.AsyncExitStack() as held:
        shell = WorkerShell(hands, tasks, SystemClock())
        loop = _loop(settings, hands, shell)
        hands.inbox.open(loop.post)
        await held.enter_async_context(shell.trainers.serving(hands.socket, to_others=settings.external_host))
        await shell.listen()
        log.info("worker_started", job=hands.identity.job, pid=hands.identity.pid, folder=str(hands.folder.path))
        own = [
            tasks.create_task(loop.run(), name="worker/loop"),
            tasks.create_task(hands.bus.run(), name="worker/bus"),
            tasks.create_task(shell.outbox.run(), name="worker/logs"),
            tasks.create_task(shell.report_progress(), name="worker/progress"),
            tasks.create_task(shell.watch_checkpoints(), name="worker/checkpoints"),
            tasks.create_task(shell.keep_reading(), name="worker/stored"),
            tasks.create_task(_obey_signals(settings, hands.inbox, stop), name="worker/signals"),
        ]
        if hands.folder.cage is not None:
            own.append(tasks.create_task(hands.folder.cage.reap(hands.folder.pids), name="worker/reaper"))
        leave = await shell.left
        await shell.host.end()
        shell.flush_progress()
        if not await shell.outbox.flush(FLUSH_S):
            log.warning("log_lines_not_sent")
        if dropped := shell.dropped():
            log.warning("dropped_total", **dropped)
        for task in own:
            task.cancel()
    return leave.code


def _loop(
    settings: WorkerSettings, hands: Hands, shell: WorkerShell
) -> RoleLoop[WorkerState, WorkerEvent, WorkerEffect]:
    clock = SystemClock()
    rules = WorkerRules(orphan_s=settings.orphan_s, host_losses_max=settings.host_losses)
    state = new_worker(hands.identity, clock.monotonic_s(), rules)
    return RoleLoop("worker", state, decide, shell, Ticked, clock, [shell.on_decision])


async def _obey_signals(settings: WorkerSettings, inbox: Inbox[WorkerEvent], stop: Stop) -> None:
    """SIGTERM is a notice: the machine may be about to go. SIGINT, or a second signal, is a person."""
    clock = SystemClock()
    await stop.asked.wait()
    if stop.signal is signal.SIGTERM and not stop.forced.is_set():
        inbox.post(NoticeCame(clock.monotonic_s(), settings.notice_s, "signal"))
    else:
        inbox.post(StopAsked(clock.monotonic_s(), f"asked to stop: {stop.why}"))
    await stop.forced.wait()
    inbox.post(StopAsked(clock.monotonic_s(), f"asked to stop: {stop.why}", FORCED_GRACE_S))


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


def _bus_settings(settings: WorkerSettings, identity: WorkerIdentity) -> BusSettings:
    return BusSettings(
        url=settings.nats_url,
        name=f"worker/{identity.worker}",
        connect_timeout_s=settings.connect_timeout_s,
        credentials=settings.nats_credentials,
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
