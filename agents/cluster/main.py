"""`tradewind cluster`: the static cluster-controller, from its settings to its exit code."""

import asyncio
import secrets

from agents.cluster.decide import decide
from agents.cluster.effects import ClusterEffect
from agents.cluster.events import BusBack, BusLost, ClusterEvent, StopAsked, Ticked
from agents.cluster.places import LocalPlaces
from agents.cluster.record import KnownRecord
from agents.cluster.settings import ClusterSettings
from agents.cluster.shell import ClusterShell, refuse_a_second
from agents.cluster.state import ClusterState, Rules, new_cluster
from messages.ids import ClusterName
from messages.subjects import STATE_BUCKET
from runtime import children
from runtime.bus import Bus, BusSettings
from runtime.clock import SystemClock
from runtime.first_connection import connect_when_up
from runtime.inbox import Inbox, posting_bus_changes
from runtime.logs import logger
from runtime.process import Stop
from runtime.role import RoleLoop
from runtime.waiting import first_of

DRAIN_S = 3.0
SAVE_S = 5.0


async def main(settings: ClusterSettings, stop: Stop, *, alone: bool = False) -> int:
    """`alone`: nothing runs below this process but the workers of jobs, so that it ends whatever they leave to it."""
    if alone:
        children.become_subreaper()
    clock, inbox = SystemClock(), Inbox[ClusterEvent]()
    cluster = ClusterName(settings.cluster)
    bus = await connect_when_up(
        _bus_settings(settings), stop.asked, posting_bus_changes(inbox, clock, BusBack, BusLost)
    )
    if bus is None:
        return 0
    try:
        await refuse_a_second(bus, cluster)
        await _control(settings, cluster, bus, inbox, stop, alone)
    finally:
        await bus.drain(DRAIN_S)
    return 0


async def _control(
    settings: ClusterSettings, cluster: ClusterName, bus: Bus, inbox: Inbox[ClusterEvent], stop: Stop, alone: bool
) -> None:
    clock = SystemClock()
    incarnation = secrets.token_hex(3)
    record = KnownRecord(await bus.bucket(STATE_BUCKET), cluster, incarnation)
    known = await record.load()
    rules = Rules(max_workers=settings.max_workers, end_grace_s=settings.end_grace_s)
    async with asyncio.TaskGroup() as tasks:
        places = LocalPlaces(settings, inbox.post, tasks, clock, alone=alone)
        shell = ClusterShell(cluster, bus, record, places, inbox, clock)
        loop: RoleLoop[ClusterState, ClusterEvent, ClusterEffect] = RoleLoop(
            "cluster",
            new_cluster(cluster, incarnation, settings.region, clock.monotonic_s(), known, rules),
            decide,
            shell,
            Ticked,
            clock,
            [shell.on_decision],
        )
        places.adopt(known.places if known is not None else ())
        inbox.open(loop.post)
        await shell.listen()
        running = tasks.create_task(loop.run(), name="cluster/loop")
        listening = tasks.create_task(bus.run(), name="cluster/bus")
        guarding = tasks.create_task(shell.guard_record(), name="cluster/record")
        logger(cluster=cluster).info("cluster_controller_started", incarnation=incarnation, run_dir=settings.run_dir)
        await stop.wait()
        if not settings.keep_workers:
            loop.post(StopAsked(clock.monotonic_s(), f"the cluster-controller is stopping ({stop.why})"))
            await _ended(shell, places, stop, settings.end_grace_s + SAVE_S)
        logger(cluster=cluster).info("cluster_controller_stopped", **_outputs(settings, places))
        places.forget_all()
        running.cancel()
        listening.cancel()
        guarding.cancel()


async def _ended(shell: ClusterShell, places: LocalPlaces, stop: Stop, within_s: float) -> None:
    """Every place has ended: in its own time, or at once when told so a second time."""
    if not await first_of(shell.at_rest, stop.forced, timeout_s=within_s):
        logger().warning("places_not_ended", within_s=within_s)
    if not shell.at_rest.is_set():
        await places.kill_all()


def _outputs(settings: ClusterSettings, places: LocalPlaces) -> dict[str, str | int]:
    """Where to look, if there is anything: what workers wrote that ended well is gone with them."""
    left = len(places.logs_left())
    return {"outputs": left, "run_dir": settings.run_dir} if left else {}


def _bus_settings(settings: ClusterSettings) -> BusSettings:
    return BusSettings(
        url=settings.nats_url,
        name=f"cluster/{settings.cluster}",
        connect_timeout_s=settings.connect_timeout_s,
        credentials=settings.nats_credentials,
    )
