"""Finds, describes and removes cloud resources that no live job owns.

The command reads the cloud once for the list, and again before each removal.
"""

import asyncio
import os
import shlex
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from msgspec import Struct, structs

from controlplane.catalog.shipped import shipped_catalog
from controlplane.clouds.interface import Cloud, ClusterInfo, MachineInfo, PoolInfo
from controlplane.clouds.outcomes import Refused, Unreachable, with_hint
from controlplane.clouds.spec import Fleet
from controlplane.fleet.interpretation import removal_command
from controlplane.ledger.pricing import Market, market_of, rate_of
from controlplane.reaper import findings
from controlplane.reaper.findings import Clusters, Findings, Found
from controlplane.reaper.inventory import Inventory, Resource, look, name_of
from controlplane.reaper.removing import Fate, Removal, remove_patiently
from messages.ids import ClusterName
from runtime.errors import UserError
from tradewind.cli.live_jobs import Known, NobodyKnows, known_jobs
from tradewind.terminal import output

SILENCE = "The cloud does not list its resources"
PATIENCE_S = 900.0
"""Most seconds that a removal waits: the creation of a pool in a zone without machines takes ten minutes."""
AT_ONCE = 4

WhyNotRemoved = Callable[[Found], Awaitable[str]]
"""Why a resource must not be removed now; raises `NobodyKnows`, or `UserError` if that is unknown for good."""


class OrphanView(Struct, frozen=True):
    kind: str
    """`pool`, `cluster` or `machine`."""
    name: str
    cluster: str
    """Empty for a machine without a pool."""
    zone: str
    """Zone, or location of a cluster."""
    job: str | None
    why: str
    since: float | None
    """Unix seconds; None if unknown."""
    machines: int
    micro_usd_per_hour: int | None
    """Price of these machines; None if a price is unknown."""
    command: str
    """The command that removes it."""
    outcome: str = "found"
    """`found`, `removed`, `left` or `failed`."""
    trouble: str = ""
    """Why the removal failed."""


class ReapView(Struct, frozen=True):
    fleet: str
    jobs_known_from: str
    orphans: tuple[OrphanView, ...]
    left_alone: tuple[OrphanView, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """The options of the command."""

    clusters: bool
    yes: bool
    assume_no_jobs: bool


@dataclass(frozen=True, slots=True)
class Looked:
    inventory: Inventory
    known: Known
    findings: Findings


async def look_around(cloud: Cloud, fleet: Fleet, wish: Wish) -> Looked:
    """Reads the cloud, then the live jobs, so that the job of each resource is known. Raises `UserError`."""
    inventory = await look(cloud)
    if isinstance(inventory, Unreachable):
        raise NobodyKnows(f"{SILENCE}: {inventory.detail}", "retry in a moment")
    if isinstance(inventory, Refused):
        raise UserError(f"{SILENCE}: {inventory.detail}", inventory.hint)
    known = Known({}, "--assume-no-jobs") if wish.assume_no_jobs else await known_jobs(fleet, os.environ)
    if wish.clusters and wish.yes and known.master:
        raise UserError(
            f"The master at {known.master} would create the clusters again.",
            "end it first, and set TRADEWIND_NATS_URL to its bus",
        )
    mine = findings.FleetScope(fleet.name, [ClusterName(cluster.name) for cluster in fleet.clusters])
    which = Clusters.ALL if wish.clusters else Clusters.UNNAMED
    return Looked(inventory, known, findings.sort_out(inventory, known.claims, mine, time.time(), which))


async def why_not_removed(cloud: Cloud, fleet: Fleet, wish: Wish, found: Found) -> str:
    """Why the resource must be kept, or empty. Reads everything again. Raises `UserError`."""
    now = await look_around(cloud, fleet, wish)
    return findings.why_not_removed(found, now.inventory, now.findings)


def orphan_view(found: Found, cost: int | None, command: str) -> OrphanView:
    kind, name, cluster, zone = _named(found)
    return OrphanView(kind, name, cluster, zone, found.job, found.why, found.since, len(found.machines), cost, command)


def _named(found: Found) -> tuple[str, str, str, str]:
    resource = found.resource
    match resource:
        case PoolInfo():
            return "pool", resource.ref.pool, resource.ref.cluster, resource.kind.zone
        case ClusterInfo():
            return "cluster", resource.name, resource.name, resource.location
        case MachineInfo():
            return "machine", resource.name, "", resource.kind.zone
        case _:
            assert_never(resource)


async def prices_now(cloud: Cloud) -> Market:
    """Current prices, for display. If the cloud has none, the prices of the catalog apply."""
    prices = await cloud.market()
    return {} if isinstance(prices, Unreachable | Refused) else market_of(prices)


def described(found: Found, fleet: Fleet, path: Path, wish: Wish, market: Market) -> OrphanView:
    cost = _micro_usd_per_hour(found.machines, market)
    return orphan_view(found, cost, _command(found.resource, fleet, path, wish))


def _command(resource: Resource, fleet: Fleet, path: Path, wish: Wish) -> str:
    """The command that removes the resource. `tradewind reap` does not remove machines without a pool."""
    if isinstance(resource, MachineInfo):
        return removal_command(fleet, os.environ, resource)
    flags = [*(["--clusters"] if wish.clusters else []), *(["--assume-no-jobs"] if wish.assume_no_jobs else [])]
    return " ".join(["tradewind reap --fleet", shlex.quote(str(path)), *flags, "--yes"])


async def remove_all(
    cloud: Cloud, found: Sequence[Found], views: Sequence[OrphanView], why_not_removed: WhyNotRemoved
) -> list[OrphanView]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def remove(each: Found, view: OrphanView) -> OrphanView:
        async with turns:
            return _reported(each, view, await _removed(cloud, each, why_not_removed))

    async with asyncio.TaskGroup() as tasks:
        removals = [
            tasks.create_task(remove(each, view), name=f"reap/{view.name}")
            for each, view in zip(found, views, strict=True)
        ]
    return [removal.result() for removal in removals]


async def _removed(cloud: Cloud, found: Found, why_not_removed: WhyNotRemoved) -> Removal:
    name = name_of(found.resource)
    output.say(f"removing {name}")

    async def checked_again() -> str | Unreachable:
        try:
            return await why_not_removed(found)
        except NobodyKnows as error:
            return Unreachable(error.message.rstrip("."))

    def waits(why: str) -> None:
        output.say(f"{name} waits: {why}")

    try:
        return await remove_patiently(cloud, found.resource, PATIENCE_S, waits, checked_again)
    except UserError as error:
        return Removal(Fate.STUCK, error.message.rstrip("."))


def _reported(found: Found, view: OrphanView, removal: Removal) -> OrphanView:
    name, why = name_of(found.resource), removal.why
    match removal.fate:
        case Fate.GONE:
            output.say(f"{name} is gone")
            return structs.replace(view, outcome="removed")
        case Fate.KEPT:
            output.say(f"{name} is kept: {why}")
            return structs.replace(view, outcome="left", why=why)
        case Fate.STUCK:
            hint = view.command if isinstance(found.resource, MachineInfo) else ""
            output.say(f"{name} is not removed: {with_hint(why, hint)}")
            return structs.replace(view, outcome="failed", trouble=why)
        case _:
            assert_never(removal.fate)


def _micro_usd_per_hour(machines: Sequence[MachineInfo], market: Market) -> int | None:
    """The price of the machines, without disks, system pools and cluster fees; None if one price is unknown."""
    catalog = shipped_catalog()
    prices = [rate_of(machine.kind, market, catalog).paid for machine in machines]
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
