"""From a fleet file to machines: the cloud, the clusters kept ready, the allocators of all jobs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from controlplane.allocator.settings import AllocatorSettings
from controlplane.bootstrap.bootstrap import Bootstrap
from controlplane.bootstrap.outcomes import PassOutcome
from controlplane.bootstrap.settings import Place, Secrets
from controlplane.capacity.advisor import PricedFleet
from controlplane.capacity.capacity import Capacity, FleetTerms
from controlplane.capacity.fleet_keeper import Controllers, FleetKeeper
from controlplane.capacity.interface import OnPlacement
from controlplane.capacity.leaders_cloud import LeadersCloud
from controlplane.capacity.observer import Advice, Observer
from controlplane.capacity.planning import Planning
from controlplane.capacity.silent_controllers import SilentControllers
from controlplane.capacity.upgrade_guard import UpgradeGuard
from controlplane.clouds.interface import Cloud, PoolPlan
from controlplane.clouds.outcomes import reason_of
from controlplane.clouds.spec import Fleet
from controlplane.fleet.files import read_fleet
from controlplane.fleet.plans import (
    bootstrap_settings,
    cluster_plans,
    complete,
    known_prices,
    load_providers,
    offers,
    open_cloud,
    places,
    pull_hint,
)
from controlplane.ledger.books import Books
from controlplane.reaper import findings
from controlplane.reaper.claims import read_records
from controlplane.reaper.ownership_labels import bus_of, lease_of
from controlplane.reaper.reaper import Reaper
from messages.events import FLEET, Event
from messages.ids import ClusterName
from runtime.bus import Bucket
from runtime.clock import Clock


def prepare(fleet_file: Path) -> None:
    """Imports what the fleet's clouds need, ahead of its use; blocks."""
    load_providers(read_fleet(fleet_file))


@dataclass(frozen=True, slots=True)
class Leader:
    """For whom machines are provided, and what it keeps."""

    clock: Clock
    bucket: Bucket
    books: Books
    secrets: Secrets
    may_act: Callable[[], bool]
    announce: Callable[[Event], None]
    on_placement: OnPlacement


@asynccontextmanager
async def provided(fleet_file: Path, environ: Mapping[str, str], leader: Leader) -> AsyncIterator[Capacity]:
    """While it is open the fleet's clusters are made ready, each job gets its nodes, and what they cost is noted."""
    fleet, clock, announce, may_act = read_fleet(fleet_file), leader.clock, leader.announce, leader.may_act
    bus = bus_of(await leader.bucket.made_at())
    opened = await open_cloud(fleet, environ)
    observer = Observer(opened, clock, Advice(announce).see)
    cloud = LeadersCloud(opened, may_act, observer)

    def completed(plan: PoolPlan) -> PoolPlan:
        return complete(fleet, plan, lease_of(clock.wall_s(), bus))

    try:
        prices = await asyncio.to_thread(known_prices, fleet, environ, opened)
        async with asyncio.TaskGroup() as tasks:
            priced = PricedFleet(offers(fleet), prices, [plan.system for plan in cluster_plans(fleet)])
            planning = Planning(cloud, observer, priced, leader.bucket, clock, may_act, announce)
            settings = AllocatorSettings(unready_timeout_s=fleet.nodes.unready_timeout_s)
            capacity = Capacity(
                cloud,
                FleetTerms(offers(fleet), completed, pull_hint(fleet, environ)),
                clock,
                announce,
                leader.on_placement,
                settings,
                planning=planning,
            )
            ours = findings.FleetScope(fleet.name, [plan.name for plan in cluster_plans(fleet)])
            records = partial(read_records, leader.bucket)
            reaper = Reaper(cloud, ours, records, capacity.is_settled, announce, may_act, clock)
            running = (
                tasks.create_task(_keeper(fleet, cloud, capacity, leader).run(), name="fleet"),
                tasks.create_task(UpgradeGuard(cloud, cluster_plans(fleet), announce, clock).run(), name="upgrades"),
                tasks.create_task(observer.run(), name="observer"),
                tasks.create_task(leader.books.run(observer, fleet.name), name="ledger"),
                tasks.create_task(planning.run(), name="planning"),
                tasks.create_task(reaper.run(), name="reaper"),
            )
            yield capacity
            for each in running:
                each.cancel()
    finally:
        await cloud.close()


def _keeper(fleet: Fleet, cloud: Cloud, capacity: Capacity, leader: Leader) -> FleetKeeper:
    def report(place: Place, outcome: PassOutcome) -> None:
        event = event_of(place, outcome)
        if event is not None:
            leader.announce(event)

    bootstrap = Bootstrap(cloud, bootstrap_settings(fleet), leader.secrets, report)
    by_cluster = {place.cluster: place for place in places(fleet)}

    async def install(cluster: ClusterName) -> None:
        await bootstrap.install_until_done(by_cluster[cluster])

    silent = SilentControllers(
        bootstrap.controller_failure,
        capacity.block,
        leader.announce,
        capacity.heard_s,
        capacity.pull_hint,
        leader.clock,
    )
    controllers = Controllers(capacity.heard_s, capacity.hear_of_cluster, silent.outwait)
    return FleetKeeper(cloud, cluster_plans(fleet), install, leader.announce, controllers, leader.clock)


def event_of(place: Place, outcome: PassOutcome) -> Event | None:
    """What stands in the way of a cluster's being set up; its being ready is told by whoever keeps it."""
    why = reason_of(outcome)
    if not why:
        return None
    return Event(FLEET, "cluster_waits", f"cluster {place.cluster} is not set up yet", why, {"cluster": place.cluster})
