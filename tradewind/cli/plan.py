"""`tradewind plan`: where a job would train, and what it would cost, before anything is spent."""

import asyncio
import os
from collections.abc import Mapping

import click

from controlplane.clouds.spec import Fleet
from controlplane.planning.measured_profiles import combined, knows_any
from messages.jobs import JobSpec
from messages.measured import MeasuredProfile
from runtime.errors import TradewindError
from tradewind.cli.offers import MASTER_S, known_offers, no_observations, prices_of
from tradewind.cli.plan_report import print_plan
from tradewind.cli.planner import fleet_offers, of_fleet, planned
from tradewind.client.api import connected


async def show_plan(spec: JobSpec, name: str, fleet: Fleet | None, *, as_json: bool) -> int:
    known, why = await known_offers(os.environ)
    found = fleet_offers(known)
    measured = await known_measurement(os.environ, spec.name) if not why else None
    profile = combined(spec, measured)
    made = planned(spec, found if fleet is None else of_fleet(found, fleet), name, profile)
    print_plan(made, spec, profile, measured, prices_of(known), known.quotas_page, as_json=as_json)
    if why and not as_json:
        click.echo(no_observations(why), err=True)
    return 0


async def known_measurement(environ: Mapping[str, str], name: str) -> MeasuredProfile | None:
    """The master's measurements of the job with that name, if they are enough for a plan."""
    try:
        async with asyncio.timeout(MASTER_S), connected(environ) as api:
            measured = next((view.measured for view in await api.jobs() if view.name == name), None)
    except (TradewindError, TimeoutError):
        return None
    return measured if measured is not None and knows_any(measured) else None
