"""`tradewind reap`: what belongs to no live job in the cloud, and its removal."""

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs
from rich.table import Table

from tradewind.cli.options import json_option
from tradewind.terminal import output, tables

if TYPE_CHECKING:
    from controlplane.clouds.spec import Fleet
    from tradewind.cli.live_jobs import Known
    from tradewind.cli.orphans import OrphanView, Wish

EXIT_FOUND = 3
"""Something was found, and --yes was not given."""
ABOUT = """
\b
Examples:
  tradewind reap --fleet fleet.yaml                what would be removed, and what it costs an hour
  tradewind reap --fleet fleet.yaml --yes          remove it
  tradewind reap --fleet fleet.yaml --clusters     the fleet's clusters, too: the end of a fleet

\b
Exit codes: 0 nothing is left to remove, 3 something was found and --yes was not given, 1 something could not be
removed, 2 the command could not be carried out.

\b
Which jobs live is asked of the master at TRADEWIND_API_URL (http://127.0.0.1:8800 if not set), if it has this fleet,
or, if it does not answer, read from the records on its bus, if TRADEWIND_NATS_URL names it. Nothing is guessed.
"""


@click.command(epilog=ABOUT)
@click.option(
    "--fleet",
    type=click.Path(path_type=Path),
    metavar="FLEET.yaml",
    envvar="TRADEWIND_FLEET",
    required=True,
    help="The fleet to check for leftovers; else TRADEWIND_FLEET.",
)
@click.option("--clusters", is_flag=True, help="Also the clusters that the fleet file names. End the master first.")
@click.option("--yes", is_flag=True, help="Remove what was found.")
@click.option(
    "--assume-no-jobs",
    is_flag=True,
    help="Do not ask the master: treat every job of this fleet as ended. Only if you are sure.",
)
@json_option
def reap(fleet: Path, clusters: bool, yes: bool, assume_no_jobs: bool, as_json: bool) -> None:
    """Show what is in the cloud with the fleet's label and belongs to no live job; with --yes remove it.

    Pools of jobs that have ended or that nobody knows, machines without a pool, clusters that the fleet file does not
    name. What is another fleet's, or nobody's that we know, is never touched.
    """
    from controlplane.fleet.files import read_fleet
    from tradewind.cli.orphans import Wish
    from tradewind.cli.runner import run_command

    wish = Wish(clusters, yes, assume_no_jobs)
    read = read_fleet(fleet)
    run_command(lambda: show_orphans(read, fleet, wish, as_json=as_json), "error")


async def show_orphans(fleet: "Fleet", path: Path, wish: "Wish", *, as_json: bool) -> int:
    from controlplane.fleet.plans import open_cloud
    from tradewind.cli.orphans import ReapView, described, look_around, prices_now, remove_all, why_kept

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
            orphans = await remove_all(cloud, found.orphans, orphans, partial(why_kept, cloud, fleet, wish))
        if as_json:
            output.echo_json(ReapView(fleet.name, known.source, tuple(orphans), tuple(left)))
        return _end(orphans, wish, as_json=as_json)
    finally:
        await cloud.close()


def _print(fleet: "Fleet", known: "Known", orphans: Sequence["OrphanView"], left: Sequence["OrphanView"]) -> None:
    if orphans:
        tables.console().print(orphan_table(orphans, time.time()))
        costs = [each.micro_usd_per_hour for each in orphans]
        some = "" if None not in costs else " at least, for not all prices are known"
        total = output.usd_text(sum(cost for cost in costs if cost is not None))
        click.echo(f"\n{len(orphans)} found; their machines cost {total} USD an hour{some}.")
    else:
        click.echo(_nothing(fleet, left))
    for each in left:
        whose = f" of job {each.job}" if each.job else ""
        click.echo(f"Left alone: {each.kind} {each.name}{whose}: {each.why}.")
    click.echo(f"Which jobs live is known from {known.source}.")


def _nothing(fleet: "Fleet", left: Sequence["OrphanView"]) -> str:
    if left:
        return f"Fleet {fleet.name} has nothing that can be removed now."
    return f"Fleet {fleet.name} has nothing left over: every resource belongs to a live job."


def _end(orphans: Sequence["OrphanView"], wish: "Wish", *, as_json: bool) -> int:
    from runtime.process import EXIT_FAILED

    if wish.yes:
        return EXIT_FAILED if any(each.outcome == "failed" for each in orphans) else 0
    if orphans and not as_json:
        for command in dict.fromkeys(each.command for each in orphans):
            click.echo(output.next_command(command))
    return EXIT_FOUND if orphans else 0


def orphan_table(orphans: Sequence["OrphanView"], now: float) -> Table:
    columns = ("WHAT", "NAME", "CLUSTER", "ZONE", "JOB", ">SINCE", ">MACHINES", ">USD/H", "WHY")
    return tables.table(columns, (_row(each, now) for each in orphans))


def _row(each: "OrphanView", now: float) -> tuple[str, ...]:
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
