"""From a fleet file to what belongs to no live job: looked for, shown, and removed if asked for."""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from msgspec import structs

from controlplane.catalog.money import usd_text
from controlplane.catalog.shipped import shipped_catalog
from controlplane.clouds.interface import Cloud, MachineInfo
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.fleet.cloud import open_cloud
from controlplane.fleet.files import read_fleet
from controlplane.fleet.plans import gke_settings
from controlplane.fleet.spec import Fleet
from controlplane.ledger.pricing import Market, market_of
from controlplane.reaper.costs import micro_usd_per_hour
from controlplane.reaper.findings import Found
from controlplane.reaper.inventory import Resource
from runtime.process import EXIT_FAILED, Stop, run
from tradewind.cli import output, tables
from tradewind.cli.foreground import quiet_logs, unless_stopped
from tradewind.cli.output import echo_json
from tradewind.cli.reap.known import Known
from tradewind.cli.reap.looking import Wish, look_around, why_kept
from tradewind.cli.reap.removing import remove_all
from tradewind.cli.reap.view import OrphanView, ReapView, orphan_table, orphan_view

EXIT_FOUND = 3
"""Something is there to be removed, and nobody said that it should be."""


def show_orphans(path: Path, wish: Wish) -> None:
    fleet = read_fleet(path)

    async def main(stop: Stop) -> int:
        return await unless_stopped(_reap(fleet, path, wish), stop)

    quiet_logs("error")
    sys.exit(run(main))


async def _reap(fleet: Fleet, path: Path, wish: Wish) -> int:
    cloud = await open_cloud(fleet, os.environ)
    try:
        looked = await look_around(cloud, fleet, wish)
        found, known = looked.findings, looked.known
        market = await _market(cloud)
        orphans = [_view(each, fleet, path, wish, market) for each in found.orphans]
        left = [structs.replace(_view(each, fleet, path, wish, market), outcome="left") for each in found.left]
        if not wish.as_json:
            _print(fleet, known, orphans, left)
        if wish.yes:
            orphans = await remove_all(cloud, found.orphans, orphans, partial(why_kept, cloud, fleet, wish))
        if wish.as_json:
            echo_json(ReapView(fleet.name, known.source, tuple(orphans), tuple(left)))
        return _end(orphans, path, wish)
    finally:
        await cloud.close()


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
        tables.console().print(orphan_table(orphans, time.time()))
        costs = [each.micro_usd_per_hour for each in orphans]
        some = "" if None not in costs else " at least, for not all prices are known"
        total = usd_text(sum(cost for cost in costs if cost is not None))
        click.echo(f"\n{len(orphans)} found; their machines cost {total} USD an hour{some}.")
    else:
        click.echo(_nothing(fleet, left))
    for each in left:
        whose = f" of job {each.job}" if each.job else ""
        click.echo(f"Left alone: {each.kind} {each.name}{whose}: {each.why}.")
    click.echo(f"Which jobs live is known from {known.source}.")


def _nothing(fleet: Fleet, left: Sequence[OrphanView]) -> str:
    if left:
        return f"Fleet {fleet.name} has nothing that can be removed now."
    return f"Fleet {fleet.name} has nothing left over: every resource belongs to a live job."


def _end(orphans: Sequence[OrphanView], path: Path, wish: Wish) -> int:
    if wish.yes:
        return EXIT_FAILED if any(each.outcome == "failed" for each in orphans) else 0
    if orphans and not wish.as_json:
        for command in dict.fromkeys(each.command for each in orphans):
            click.echo(output.next_command(command))
    return EXIT_FOUND if orphans else 0
