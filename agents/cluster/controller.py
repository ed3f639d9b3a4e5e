"""The part that all cluster-controllers share: connect, read the record, run the core."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agents.cluster.decide import decide
from agents.cluster.effects import ClusterEffect
from agents.cluster.events import BusBack, BusLost, ClusterEvent, Ticked
from agents.cluster.shell import ClusterShell, KnownRecord, Places, refuse_a_second
from agents.cluster.state import ClusterState, Known, Rules, new_cluster
from messages.ids import ClusterName
from messages.subjects import STATE_BUCKET
from runtime.bus import Bus
from runtime.clock import Clock, SystemClock
from runtime.errors import UserError
from runtime.first_connection import connect_when_up
from runtime.inbox import Inbox, posting_bus_changes
from runtime.process import Stop
from runtime.role import RoleLoop
from runtime.settings import BusSettings

BATCH_AT_MOST = 5000
"""Events that are learned before a decision is made."""
DRAIN_S = 3.0
TRY_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Opening:
    """A connected controller that has no places yet."""

    cluster: ClusterName
    incarnation: str
    bus: Bus
    record: KnownRecord
    known: Known | None
    """The record of an earlier controller."""
    inbox: Inbox[ClusterEvent]
    clock: Clock


@dataclass(frozen=True, slots=True)
class Core:
    """The running core and its shell."""

    loop: RoleLoop[ClusterState, ClusterEvent, ClusterEffect]
    shell: ClusterShell
    tasks: tuple[asyncio.Task[None], ...]


@contextlib.asynccontextmanager
async def opened(
    cluster: ClusterName, settings: BusSettings, stop: Stop, takeover_s: float = 0.0
) -> AsyncIterator[Opening | None]:
    """Connects a controller. Yields None if the process is stopped before the bus is up.

    Raises `UserError` if another controller still runs after `takeover_s`.
    """
    clock, inbox = SystemClock(), Inbox[ClusterEvent]()
    bus = await connect_when_up(settings, stop.asked, posting_bus_changes(inbox, clock, BusBack, BusLost))
    if bus is None:
        yield None
        return
    try:
        await _outwait_another(bus, cluster, takeover_s)
        incarnation = secrets.token_hex(3)
        record = KnownRecord(await bus.bucket(STATE_BUCKET), cluster, incarnation)
        yield Opening(cluster, incarnation, bus, record, await record.load(), inbox, clock)
    finally:
        await bus.drain(DRAIN_S)


async def start_core(
    opening: Opening, region: str, rules: Rules, places: Places, tasks: asyncio.TaskGroup, *, synced: bool
) -> Core:
    """Starts core and shell. `synced`: all existing places are already known."""
    cluster, clock, bus = opening.cluster, opening.clock, opening.bus
    now_s = clock.monotonic_s()
    state = new_cluster(cluster, opening.incarnation, region, now_s, opening.known, rules, synced=synced)
    shell = ClusterShell(cluster, bus, opening.record, places, opening.inbox, clock)
    loop: RoleLoop[ClusterState, ClusterEvent, ClusterEffect] = RoleLoop(
        "cluster", state, decide, shell, Ticked, clock, [shell.on_decision], batch_at_most=BATCH_AT_MOST
    )
    opening.inbox.open(loop.post)
    await shell.listen()
    running = (
        tasks.create_task(loop.run(), name="cluster/loop"),
        tasks.create_task(bus.run(), name="cluster/bus"),
        tasks.create_task(shell.guard_record(), name="cluster/record"),
        tasks.create_task(shell.report_progress(), name="cluster/progress"),
    )
    return Core(loop, shell, running)


async def _outwait_another(bus: Bus, cluster: ClusterName, within_s: float) -> None:
    """Waits until no other controller runs."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while True:
        try:
            await refuse_a_second(bus, cluster)
        except UserError:
            if loop.time() >= until_s:
                raise
            await asyncio.sleep(TRY_AGAIN_S)
        else:
            return
