"""From a fleet file to what is nobody's: looked for, shown, and removed if asked for."""

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from msgspec import structs

from controlplane.catalog.money import usd_text
from controlplane.catalog.shipped import shipped_catalog
from controlplane.clouds.interface import Cloud, MachineInfo
from controlplane.clouds.outcomes import Refused, Unreachable, with_hint
from controlplane.fleet.cloud import open_cloud
from controlplane.fleet.files import read_fleet
from controlplane.fleet.plans import gke_settings
from controlplane.fleet.spec import Fleet
from controlplane.ledger.pricing import Market, market_of
from controlplane.reaper import findings
from controlplane.reaper.costs import micro_usd_per_hour
from controlplane.reaper.findings import Clusters, Found
from controlplane.reaper.inventory import Resource, look
from controlplane.reaper.removing import name_of, remove_patiently
from messages.ids import ClusterName
from runtime.errors import UserError
from runtime.process import EXIT_FAILED, Stop, run
from tradewind.cli import present
from tradewind.cli.interrupt import unless_stopped
from tradewind.cli.jobs.asking import echo_json
from tradewind.cli.jobs.oneshot import quiet_logs
from tradewind.cli.reap.known import Known, known_jobs
from tradewind.cli.reap.view import OrphanView, ReapView, orphan_table, orphan_view

EXIT_FOUND = 3
"""Something is there to be removed, and nobody said that it should be."""
PATIENCE_S = 900.0
"""With what is in the way of a removal: a pool without machines in its zone is busy being made for ten minutes."""
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Wish:
    clusters: bool
    yes: bool
    assume_no_jobs: bool
    as_json: bool


def show_orphans(path: Path, wish: Wish) -> None:
    fleet = read_fleet(path)

    async def main(stop: Stop) -> int:
        return await unless_stopped(_reap(fleet, path, wish), stop)

    quiet_logs()
    sys.exit(run(main))


async def _reap(fleet: Fleet, path: Path, wish: Wish) -> int:
    cloud = await open_cloud(fleet, os.environ)
    try:
        found, known = await _sorted_out(cloud, fleet, wish)
        market = await _market(cloud)
        orphans = [_view(each, fleet, path, wish, market) for each in found.orphans]
        left = [structs.replace(_view(each, fleet, path, wish, market), outcome="left") for each in found.left]
        if not wish.as_json:
            _print(fleet, known, orphans, left)
        if wish.yes:
            orphans = await _remove_all(cloud, found.orphans, orphans)
        if wish.as_json:
            echo_json(ReapView(fleet.name, known.source, tuple(orphans), tuple(left)))
        return _end(orphans, path, wish)
    finally:
        await cloud.close()


async def _sorted_out(cloud: Cloud, fleet: Fleet, wish: Wish) -> tuple[findings.Findings, Known]:
    """The cloud is looked at first: of all that is seen the job was known before."""
    inventory = await look(cloud)
    if isinstance(inventory, Unreachable | Refused):
        hint = inventory.hint if isinstance(inventory, Refused) else "again in a moment"
        raise UserError(f"The cloud does not tell what there is: {inventory.detail}", hint)
    known = Known({}, "you: no job lives") if wish.assume_no_jobs else await known_jobs(fleet, os.environ)
    if wish.clusters and wish.yes and known.master:
        raise UserError(
            f"The master at {known.master} would make the clusters again as soon as they are gone.",
            "end it first; its jobs are then read from its bus, at TRADEWIND_NATS_URL",
        )
    mine = findings.Fleet(fleet.name, [ClusterName(cluster.name) for cluster in fleet.clusters])
    which = Clusters.ALL if wish.clusters else Clusters.UNNAMED
    return findings.sort_out(inventory, known.claims, mine, time.time(), which), known


async def _market(cloud: Cloud) -> Market:
    """Prices are for people only: where they are not told, those of the catalog must do."""
    prices = await cloud.market()
    return {} if isinstance(prices, Unreachable | Refused) else market_of(prices)


def _view(found: Found, fleet: Fleet, path: Path, wish: Wish, market: Market) -> OrphanView:
    cost = micro_usd_per_hour(found.machines, market, shipped_catalog())
    return orphan_view(found, cost, _command(found.resource, fleet, path, wish))


def _command(resource: Resource, fleet: Fleet, path: Path, wish: Wish) -> str:
    """That removes it; a machine in no pool is beyond us."""
    if isinstance(resource, MachineInfo):
        project = gke_settings(fleet, os.environ).project
        return f"gcloud compute instances delete {resource.name} --zone={resource.zone} --project={project}"
    flags = [*(["--clusters"] if wish.clusters else []), *(["--assume-no-jobs"] if wish.assume_no_jobs else [])]
    return " ".join(["tradewind reap --fleet", shlex.quote(str(path)), *flags, "--yes"])


def _print(fleet: Fleet, known: Known, orphans: Sequence[OrphanView], left: Sequence[OrphanView]) -> None:
    if orphans:
        present.console().print(orphan_table(orphans, time.time()))
        costs = [each.micro_usd_per_hour for each in orphans]
        some = "" if None not in costs else " at least, for not all prices are known"
        total = usd_text(sum(cost for cost in costs if cost is not None))
        click.echo(f"\n{len(orphans)} found; their machines cost {total} USD an hour{some}.")
    else:
        click.echo(f"Nothing of fleet {fleet.name} is nobody's.")
    for each in left:
        whose = f" of job {each.job}" if each.job else ""
        click.echo(f"Left alone: {each.kind} {each.name}{whose}: {each.why}.")
    click.echo(f"Which jobs live is known from {known.source}.")


async def _remove_all(cloud: Cloud, found: Sequence[Found], views: Sequence[OrphanView]) -> list[OrphanView]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def remove(each: Found, view: OrphanView) -> OrphanView:
        async with turns:
            return await _remove(cloud, each, view, present.say)

    async with asyncio.TaskGroup() as tasks:
        removals = [
            tasks.create_task(remove(each, view), name=f"reap/{view.name}")
            for each, view in zip(found, views, strict=True)
        ]
    return [removal.result() for removal in removals]


async def _remove(cloud: Cloud, found: Found, view: OrphanView, say: Callable[[str], None]) -> OrphanView:
    name = name_of(found.resource)
    say(f"removing {name}")
    trouble = await remove_patiently(cloud, found.resource, PATIENCE_S, lambda why: say(f"{name} waits: {why}"))
    if not trouble:
        say(f"{name} is gone")
        return structs.replace(view, outcome="removed")
    hint = view.command if isinstance(found.resource, MachineInfo) else ""
    say(f"{name} could not be removed: {with_hint(trouble, hint)}")
    return structs.replace(view, outcome="failed", trouble=trouble)


def _end(orphans: Sequence[OrphanView], path: Path, wish: Wish) -> int:
    if wish.yes:
        return EXIT_FAILED if any(each.outcome == "failed" for each in orphans) else 0
    if orphans and not wish.as_json:
        for command in dict.fromkeys(each.command for each in orphans):
            click.echo(present.next_command(command))
    return EXIT_FOUND if orphans else 0
