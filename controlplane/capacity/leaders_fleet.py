"""Everything that a leader runs for its fleet: cloud, clusters, observer, ledger, reaper and allocators."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from controlplane.allocator.settings import AllocatorSettings
from controlplane.bootstrap.settings import Secrets
from controlplane.capacity.advisor import PricedFleet
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.clusters import Clusters, ClusterTerms
from controlplane.capacity.interface import LastHeard, OnPlacement
from controlplane.capacity.leaders_cloud import LeadersCloud
from controlplane.capacity.observer import Advice, Observer
from controlplane.capacity.plan_inputs import PlanInputs
from controlplane.capacity.shell import FleetTerms
from controlplane.clouds.spec import Fleet
from controlplane.fleet.interpretation import (
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
from controlplane.reaper.claims import read_records
from controlplane.reaper.findings import FleetScope
from controlplane.reaper.ownership_labels import bus_of, lease_of
from controlplane.reaper.reaper import Reaper
from messages.events import Event
from runtime.bus import Bucket
from runtime.clock import Clock


def prepare(fleet: Fleet) -> None:
    """Import the modules of the fleet's clouds before they are needed; blocks."""
    load_providers(fleet)


@dataclass(frozen=True, slots=True)
class Leader:
    """What a leader gives to its fleet: stores, secrets, clock and callbacks."""

    clock: Clock
    bucket: Bucket
    books: Books
    secrets: Secrets
    may_act: Callable[[], bool]
    announce: Callable[[Event], None]
    on_placement: OnPlacement
    heard_s: LastHeard


@asynccontextmanager
async def provided(fleet: Fleet, environ: Mapping[str, str], leader: Leader) -> AsyncIterator[Capacity]:
    """Run the fleet while the context is open: keep clusters ready, provide nodes for jobs, and record their cost."""
    clock, announce, may_act = leader.clock, leader.announce, leader.may_act
    plans = cluster_plans(fleet)
    bus = bus_of(await leader.bucket.made_at())
    opened = await open_cloud(fleet, environ)
    observer = Observer(opened, clock, Advice(announce).see)
    cloud = LeadersCloud(opened, may_act, observer)
    try:
        prices = await asyncio.to_thread(known_prices, fleet, environ, opened)
        async with asyncio.TaskGroup() as tasks:
            priced = PricedFleet(offers(fleet), prices, [plan.system for plan in plans])
            planning = PlanInputs(cloud, observer, priced, leader.bucket, clock, may_act, announce)
            settings = AllocatorSettings(unready_timeout_s=fleet.nodes.unready_timeout_s)
            terms = FleetTerms(
                offers(fleet),
                lambda plan: complete(fleet, plan, lease_of(clock.wall_s(), bus)),
                pull_hint(fleet, environ),
            )
            capacity = Capacity(
                cloud,
                terms,
                clock,
                announce,
                leader.on_placement,
                settings,
                planning=planning,
            )
            ours = FleetScope(fleet.name, [plan.name for plan in plans])
            records = partial(read_records, leader.bucket)
            reaper = Reaper(cloud, ours, records, capacity.is_settled, announce, may_act, clock)
            installed = ClusterTerms(plans, places(fleet), bootstrap_settings(fleet), leader.secrets)
            clusters = Clusters(cloud, installed, capacity, leader.heard_s, announce, clock)
            running = (
                tasks.create_task(clusters.run(), name="clusters"),
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
