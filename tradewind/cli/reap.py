"""`tradewind reap`: shows and removes cloud resources that no live job owns."""

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from msgspec import structs
from rich.table import Table

from controlplane.clouds.spec import Fleet
from controlplane.fleet.interpretation import open_cloud
from runtime.exit_codes import EXIT_FAILED
from tradewind.cli.live_jobs import Known
from tradewind.cli.orphans import (
    OrphanView,
    ReapView,
    Wish,
    described,
    look_around,
    prices_now,
    remove_all,
    why_not_removed,
)
from tradewind.terminal import output, tables


async def show_orphans(fleet: Fleet, path: Path, wish: Wish, *, as_json: bool) -> int:
    cloud = await open_cloud(fleet, os.environ)
    try:
        looked = await look_around(cloud, fleet, wish)
        found, known = looked.findings, looked.known
        view = partial(described, fleet=fleet, path=path, wish=wish, market=await prices_now(cloud))
        orphans = [view(each) for each in found.orphans]
        left = [structs.replace(view(each), outcome="left") for each in found.left]
        if not as_json:
            _print(fleet, known, orphans, left)
        if wish.yes:
            orphans = await remove_all(cloud, found.orphans, orphans, partial(why_not_removed, cloud, fleet, wish))
        if as_json:
            output.echo_json(ReapView(fleet.name, known.source, tuple(orphans), tuple(left)))
        return _end(orphans, wish, as_json=as_json)
    finally:
        await cloud.close()


def _print(fleet: Fleet, known: Known, orphans: Sequence[OrphanView], left: Sequence[OrphanView]) -> None:
    if orphans:
        tables.console().print(orphan_table(orphans, time.time()))
        costs = [each.micro_usd_per_hour for each in orphans]
        some = "" if None not in costs else " or more, because some prices are unknown"
        total = output.usd_text(sum(cost for cost in costs if cost is not None))
        click.echo(f"\n{len(orphans)} found; their machines cost {total} USD an hour{some}.")
    else:
        click.echo(_nothing(fleet, left))
    for each in left:
        whose = f" of job {each.job}" if each.job else ""
        click.echo(f"Kept: {each.kind} {each.name}{whose}: {each.why}.")
    click.echo(f"Source of the live jobs: {known.source}.")


def _nothing(fleet: Fleet, left: Sequence[OrphanView]) -> str:
    if left:
        return f"Fleet {fleet.name} has no resource that can be removed now."
    return f"Fleet {fleet.name} has no leftover resource: live jobs own all of them."


def _end(orphans: Sequence[OrphanView], wish: Wish, *, as_json: bool) -> int:
    if wish.yes:
        return EXIT_FAILED if any(each.outcome == "failed" for each in orphans) else 0
    if orphans and not as_json:
        for command in dict.fromkeys(each.command for each in orphans):
            output.hint(command)
    return EXIT_FAILED if orphans else 0


def orphan_table(orphans: Sequence[OrphanView], now: float) -> Table:
    columns = ("WHAT", "NAME", "CLUSTER", "ZONE", "JOB", ">SINCE", ">MACHINES", ">USD/H", "WHY")
    return tables.table(columns, (_row(each, now) for each in orphans))


def _row(each: OrphanView, now: float) -> tuple[str, ...]:
    return (
        each.kind,
        each.name,
        each.cluster or output.NOTHING,
        each.zone,
        each.job or output.NOTHING,
        output.NOTHING if each.since is None else f"{output.duration(now - each.since)} ago",
        str(each.machines),
        output.NOTHING if each.micro_usd_per_hour is None else output.usd_text(each.micro_usd_per_hour),
        each.why,
    )
