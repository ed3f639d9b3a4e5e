"""What there is, whose it is, and what follows: looked at once to show it, and again before each removal."""

import os
import time
from dataclasses import dataclass

from controlplane.clouds.interface import Cloud
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.fleet.spec import Fleet
from controlplane.reaper import findings
from controlplane.reaper.findings import Clusters, Findings, Found
from controlplane.reaper.inventory import Inventory, look
from messages.ids import ClusterName
from runtime.errors import UserError
from tradewind.cli.reap.known import Known, NobodyKnows, known_jobs

SILENCE = "The cloud does not tell what there is"


@dataclass(frozen=True, slots=True)
class Wish:
    clusters: bool
    yes: bool
    assume_no_jobs: bool
    as_json: bool


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
