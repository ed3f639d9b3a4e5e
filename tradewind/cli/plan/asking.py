"""From a job file to a plan: what is offered, what the fleet allows, what contradicts itself, and the answer."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from controlplane.capacity.profiling import combined, knows_any
from controlplane.fleet.files import read_fleet
from controlplane.planning.criteria import criteria_of
from controlplane.planning.market import market_of
from controlplane.planning.plan import Plan, plan
from controlplane.planning.refusals import refusals
from controlplane.planning.sentences import IDLE_GPUS, UNMEASURED, no_room
from controlplane.throughput.profile import Profile
from messages.criteria import Objective
from messages.jobs import JobSpec
from messages.measured import MeasuredProfile
from runtime.errors import TradewindError, UserError
from runtime.process import Stop, run
from tradewind.cli import tables
from tradewind.cli.client import connected
from tradewind.cli.foreground import quiet_logs, unless_stopped
from tradewind.cli.jobfile import read_job
from tradewind.cli.offers.asking import PATIENCE_S, known_offers, prices_of
from tradewind.cli.output import echo_json, step_text
from tradewind.cli.plan.offered import Offered, of_fleet, offered
from tradewind.cli.plan.table import plan_table
from tradewind.cli.plan.view import plan_view


def show_plan(jobfile: Path, fleetfile: Path | None, *, as_json: bool) -> None:
    spec = read_job(jobfile, "plan")
    fleet = None if fleetfile is None else read_fleet(fleetfile)

    async def main(stop: Stop) -> int:
        return await unless_stopped(_show(), stop)

    async def _show() -> int:
        known, why = await known_offers(os.environ)
        found = offered(known)
        measured = await known_measurement(os.environ, spec.name) if not why else None
        profile = combined(spec, measured)
        made = planned(spec, found if fleet is None else of_fleet(found, fleet), str(jobfile), profile)
        print_plan(made, spec, profile, measured, prices_of(known), known.quotas_page, as_json=as_json)
        if why and not as_json:
            click.echo(f"What was seen of these zones is not known here: {why}", err=True)
        return 0

    quiet_logs()
    sys.exit(run(main))


async def known_measurement(environ: Mapping[str, str], name: str) -> MeasuredProfile | None:
    """Of the job of that name, if the master has it and its trainers have told enough."""
    try:
        async with asyncio.timeout(PATIENCE_S), connected(environ) as api:
            measured = next((view.measured for view in await api.jobs() if view.name == name), None)
    except (TradewindError, TimeoutError):
        return None
    return measured if measured is not None and knows_any(measured) else None


def planned(spec: JobSpec, found: Offered, name: str, profile: Profile) -> Plan:
    criteria = criteria_of(spec)
    market = market_of(criteria, found.offers, found.links, seen=found.seen, limits=found.limits, quotas=found.quotas)
    problems = refusals(spec, criteria, found.offers, market, profile)
    if problems:
        lines = tuple(f"{path}: {text}" for path, text in problems)
        raise UserError(f"{name} cannot be planned:", "tradewind offers", lines)
    made = plan(criteria, profile, market)
    if made.score is None:
        raise UserError(f"{name} cannot be planned: {made.why}", "raise a limit, or allow more regions")
    return made


def print_plan(
    made: Plan,
    spec: JobSpec,
    profile: Profile,
    measured: MeasuredProfile | None,
    prices: str,
    quotas_page: str,
    *,
    as_json: bool,
) -> None:
    is_assumed = profile.is_assumed
    if as_json:
        echo_json(plan_view(spec.name, made, is_assumed=is_assumed, measured=measured))
        return
    tables.console().print(plan_table(made, gpus_per_node=spec.workers.ranks))
    click.echo(f"\n{made.why}; {prices}." if not is_assumed else f"\n{prices}.")
    if measured is not None:
        click.echo(f"Job {spec.name} was measured while it trained: a step is {step_text(measured)}.")
    if is_assumed:
        by_price = spec.capacity is None or spec.capacity.objective is Objective.COST
        click.echo(
            "The job file has no `profile`, and no job of this name was measured: machines are compared by "
            f"{'their price for an hour of GPU' if by_price else 'the peak figures of their makers'}, not by the speed "
            "of this model. Their number and distance suit a model of 350 million parameters. "
            "Give a `profile` (docs/planning.md), or let a run with the SDK measure it."
        )
    if is_assumed and spec.capacity is not None and spec.capacity.deadline is not None:
        click.echo(f"Nobody knows yet whether it is done in time: {UNMEASURED}.")
    if made.limited_by:
        page = f" Ask for more at {quotas_page}." if quotas_page else ""
        click.echo(f"More nodes cannot be had: {no_room(made.limited_by)}.{page}")
    if not spec.pod.gpu:
        click.echo(f"Warning: job {spec.name}: {IDLE_GPUS}.")
    if not made.proven:
        click.echo("There are too many ways to try all: a better one may exist.")
