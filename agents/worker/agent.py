"""A connected worker-agent: its parts, the tasks that run them, and its end."""

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from pathlib import Path

from agents.worker import checkpoints
from agents.worker.decide import decide
from agents.worker.effects import WorkerEffect
from agents.worker.events import NoticeCame, StopAsked, Ticked, WorkerEvent
from agents.worker.host_runner import HostChoice, HostRunner
from agents.worker.incoming import Incoming
from agents.worker.leftovers import WorkerFolder
from agents.worker.listener import Listener
from agents.worker.outgoing import Outgoing
from agents.worker.settings import WorkerSettings
from agents.worker.shell import WorkerShell
from agents.worker.state import WorkerIdentity, WorkerRules, WorkerState, new_worker
from agents.worker.terminal import Echo
from runtime.bus import Bucket, Bus
from runtime.clock import Clock, SystemClock
from runtime.inbox import Inbox
from runtime.logs import logger
from runtime.process import Stop
from runtime.role import RoleLoop

FLUSH_S = 5.0
FORCED_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Hands:
    """What the agent uses until it ends."""

    identity: WorkerIdentity
    bus: Bus
    bucket: Bucket
    folder: WorkerFolder
    host: HostChoice
    inbox: Inbox[WorkerEvent]
    socket: Path
    """The socket to which trainers attach."""
    echo: Echo | None = None


async def work(settings: WorkerSettings, hands: Hands, stop: Stop) -> int:
    """Runs until the agent leaves. Returns its exit code."""
    identity, post, clock = hands.identity, hands.inbox.post, SystemClock()
    log = logger(worker=identity.worker)
    async with asyncio.TaskGroup() as tasks, contextlib.AsyncExitStack() as held:
        outgoing = Outgoing(identity, hands.bus)
        incoming = Incoming(identity, hands.bus, hands.bucket, post, clock)
        listener = Listener(post, outgoing.log_lines, outgoing.progress, hands.echo, clock)
        trainers = listener.trainers
        host = HostRunner(hands.host, hands.folder, listener.hear_host, post, clock)
        shell = WorkerShell(identity, outgoing, incoming, host, trainers, post, tasks, clock)
        rules = WorkerRules(orphan_s=settings.orphan_s, host_losses_max=settings.host_losses)
        state = new_worker(identity, clock.monotonic_s(), rules)
        loop: RoleLoop[WorkerState, WorkerEvent, WorkerEffect] = RoleLoop(
            "worker", state, decide, shell, Ticked, clock, [shell.on_decision]
        )
        hands.inbox.open(loop.post)
        await held.enter_async_context(trainers.serving(hands.socket, to_others=settings.external_host))
        await incoming.subscribe()
        log.info("worker_started", job=identity.job, pid=identity.pid, folder=str(hands.folder.path))
        own = [
            tasks.create_task(loop.run(), name="worker/loop"),
            tasks.create_task(hands.bus.run(), name="worker/bus"),
            tasks.create_task(outgoing.log_lines.run(), name="worker/logs"),
            tasks.create_task(outgoing.report_progress(), name="worker/progress"),
            tasks.create_task(checkpoints.watch(lambda: loop.state, post, clock), name="worker/checkpoints"),
            tasks.create_task(incoming.keep_reading(), name="worker/stored"),
            tasks.create_task(incoming.fetcher.run(), name="worker/worlds"),
            tasks.create_task(_obey_signals(settings, hands.inbox, stop, clock), name="worker/signals"),
        ]
        if hands.folder.containment is not None:
            own.append(tasks.create_task(hands.folder.containment.reap(hands.folder.pids), name="worker/reaper"))
        leave = await shell.left
        await host.end()
        outgoing.flush_progress()
        if not await outgoing.log_lines.flush(FLUSH_S):
            log.warning("log_lines_not_sent")
        lines = {"log_lines_dropped": outgoing.log_lines.dropped_lines} if outgoing.log_lines.dropped_lines else {}
        if dropped := {**lines, **trainers.dropped, **hands.bus.dropped}:
            log.warning("dropped_total", **dropped)
        for task in own:
            task.cancel()
    return leave.code


async def _obey_signals(settings: WorkerSettings, inbox: Inbox[WorkerEvent], stop: Stop, clock: Clock) -> None:
    """Treats a first SIGTERM as a notice, and SIGINT or a second signal as a request to stop."""
    await stop.asked.wait()
    if stop.signal is signal.SIGTERM and not stop.forced.is_set():
        inbox.post(NoticeCame(clock.monotonic_s(), settings.notice_s, "signal"))
    else:
        inbox.post(StopAsked(clock.monotonic_s(), f"asked to stop: {stop.why}"))
    await stop.forced.wait()
    inbox.post(StopAsked(clock.monotonic_s(), f"asked to stop: {stop.why}", FORCED_GRACE_S))
