"""What was found, as JSON and as a table. Money is a whole number of micro-dollars in JSON."""

from collections.abc import Sequence
from typing import assert_never

from msgspec import Struct
from rich.table import Table

from controlplane.catalog.money import usd_text
from controlplane.clouds.interface import ClusterInfo, MachineInfo, PoolInfo
from controlplane.reaper.findings import Found
from tradewind.cli import output, tables

NOTHING = "–"


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
    """That removes it."""
    outcome: str = "found"
    """`found`, `removed`, `left` or `failed`."""
    trouble: str = ""
    """Why it failed."""


class ReapView(Struct, frozen=True):
    fleet: str
    jobs_known_from: str
    orphans: tuple[OrphanView, ...]
    left_alone: tuple[OrphanView, ...]


def orphan_view(found: Found, cost: int | None, command: str) -> OrphanView:
    kind, name, cluster, zone = _named(found)
    return OrphanView(kind, name, cluster, zone, found.job, found.why, found.since, len(found.machines), cost, command)


def _named(found: Found) -> tuple[str, str, str, str]:
    resource = found.resource
    match resource:
        case PoolInfo():
            return "pool", resource.ref.pool, resource.ref.cluster, resource.zone
        case ClusterInfo():
            return "cluster", resource.name, resource.name, resource.location
        case MachineInfo():
            return "machine", resource.name, "", resource.zone
        case _:
            assert_never(resource)


def orphan_table(orphans: Sequence[OrphanView], now: float) -> Table:
    columns = ("WHAT", "NAME", "CLUSTER", "ZONE", "JOB", ">SINCE", ">MACHINES", ">USD/H", "WHY")
    return tables.table(columns, (_row(each, now) for each in orphans))


def _row(each: OrphanView, now: float) -> tuple[str, ...]:
    return (
        each.kind,
        each.name,
        each.cluster or NOTHING,
        each.zone,
        each.job or NOTHING,
        NOTHING if each.since is None else f"{output.duration(now - each.since)} ago",
        str(each.machines),
        NOTHING if each.micro_usd_per_hour is None else usd_text(each.micro_usd_per_hour),
        each.why,
    )
