"""Resources in the cloud that no live job owns: found, described and removed.

The cloud is looked at once to show what there is, and again before each removal.
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
from controlplane.ledger.pricing import Market, market_of
from controlplane.reaper import findings
from controlplane.reaper.costs import micro_usd_per_hour
from controlplane.reaper.findings import Clusters, Findings, Found
from controlplane.reaper.inventory import Inventory, Resource, look, name_of
from controlplane.reaper.removing import Fate, Removal, remove_patiently
from messages.ids import ClusterName
from runtime.errors import UserError
from tradewind.cli.live_jobs import Known, NobodyKnows, known_jobs
from tradewind.terminal import output

SILENCE = "The cloud does not tell what there is"
PATIENCE_S = 900.0
"""Seconds that a removal may be held up: a pool without machines in its zone is busy being made for ten minutes."""
AT_ONCE = 4

WhyKept = Callable[[Found], Awaitable[str]]
"""Why something must not be removed, as of now; raises `NobodyKnows`, or `UserError` where it cannot be known."""


class OrphanView(Struct, frozen=True):
    kind: str
    """`pool`, `cluster` or `machine`."""
    name: str
    cluster: str
    """Empty for a machine that is in no pool."""
    zone: str
    """Or location, of a cluster."""
    job: str | None
    why: str
    since: float | None
    """Unix seconds; none where nobody knows."""
    machines: int
    micro_usd_per_hour: int | None
    """Of these machines; none where a price is not known."""
    command: str
    """The command that removes it."""
    outcome: str = "found"
    """`found`, `removed`, `left` or `failed`."""
    trouble: str = ""
    """Why it failed."""


class ReapView(Struct, frozen=True):
    fleet: str
    jobs_known_from: str
    orphans: tuple[OrphanView, ...]
    left_alone: tuple[OrphanView, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asked for."""

    clusters: bool
    yes: bool
    assume_no_jobs: bool


@dataclass(frozen=True, slots=True)
class Looked:
    inventory: Inventory
    known: Known
    findings: Findings


async def look_around(cloud: Cloud, fleet: Fleet, wish: Wish) -> Looked:
    """The cloud is looked at first: of all that is seen the job was known before. Raises `UserError`."""
    inventory = await look(cloud)
    if isinstance(inventory, Unreachable):
        raise NobodyKnows(f"{SILENCE}: {inventory.detail}", "again in a moment")
    if isinstance(inventory, Refused):
        raise UserError(f"{SILENCE}: {inventory.detail}", inventory.hint)
    known = Known({}, "you: no job lives") if wish.assume_no_jobs else await known_jobs(fleet, os.environ)
    if wish.clusters and wish.yes and known.master:
        raise UserError(
            f"The master at {known.master} would make the clusters again as soon as they are gone.",
            "end it first; its jobs are then read from its bus, at TRADEWIND_NATS_URL",
        )
    mine = findings.FleetScope(fleet.name, [ClusterName(cluster.name) for cluster in fleet.clusters])
    which = Clusters.ALL if wish.clusters else Clusters.UNNAMED
    return Looked(inventory, known, findings.sort_out(inventory, known.claims, mine, time.time(), which))


async def why_kept(cloud: Cloud, fleet: Fleet, wish: Wish, found: Found) -> str:
    """Others are removed first, which may take minutes: empty if it is still to go. Raises `UserError`."""
    now = await look_around(cloud, fleet, wish)
    return findings.why_kept(found, now.inventory, now.findings)


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
    """Prices of the moment, for people only: where the cloud tells none, those of the catalog are shown."""
    prices = await cloud.market()
    return {} if isinstance(prices, Unreachable | Refused) else market_of(prices)


def described(found: Found, fleet: Fleet, path: Path, wish: Wish, market: Market) -> OrphanView:
    cost = micro_usd_per_hour(found.machines, market, shipped_catalog())
    return orphan_view(found, cost, _command(found.resource, fleet, path, wish))


def _command(resource: Resource, fleet: Fleet, path: Path, wish: Wish) -> str:
    """The command that removes it; ours removes no machine outside a pool."""
    if isinstance(resource, MachineInfo):
        return removal_command(fleet, os.environ, resource)
    flags = [*(["--clusters"] if wish.clusters else []), *(["--assume-no-jobs"] if wish.assume_no_jobs else [])]
    return " ".join(["tradewind reap --fleet", shlex.quote(str(path)), *flags, "--yes"])


async def remove_all(
    cloud: Cloud, found: Sequence[Found], views: Sequence[OrphanView], why_kept: WhyKept
) -> list[OrphanView]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def remove(each: Found, view: OrphanView) -> OrphanView:
        async with turns:
            return _told(each, view, await _removed(cloud, each, why_kept))

    async with asyncio.TaskGroup() as tasks:
        removals = [
            tasks.create_task(remove(each, view), name=f"reap/{view.name}")
            for each, view in zip(found, views, strict=True)
        ]
    return [removal.result() for removal in removals]


async def _removed(cloud: Cloud, found: Found, why_kept: WhyKept) -> Removal:
    name = name_of(found.resource)
    output.say(f"removing {name}")

    async def looked_at_again() -> str | Unreachable:
        try:
            return await why_kept(found)
        except NobodyKnows as error:
            return Unreachable(error.sentence.rstrip("."))

    def waits(why: str) -> None:
        output.say(f"{name} waits: {why}")

    try:
        return await remove_patiently(cloud, found.resource, PATIENCE_S, waits, looked_at_again)
    except UserError as error:
        return Removal(Fate.STUCK, error.sentence.rstrip("."))


def _told(found: Found, view: OrphanView, removal: Removal) -> OrphanView:
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
            output.say(f"{name} could not be removed: {with_hint(why, hint)}")
            return structs.replace(view, outcome="failed", trouble=why)
        case _:
            assert_never(removal.fate)
