"""Finds the live jobs: from the master that has the fleet, or from its records on the bus."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.clouds.spec import Fleet
from controlplane.reaper.claims import read_claims
from controlplane.reaper.state import Claim, Claims
from messages import subjects
from messages.ids import ClusterName
from runtime.bus import Bus
from runtime.errors import BusUnavailable, UserError
from runtime.exit_codes import EXIT_UNREACHABLE
from runtime.settings import NATS_PREFIX, BusSettings, read_settings
from tradewind.client.api import connected
from tradewind.client.errors import MasterAway
from tradewind.client.watch import has_ended

BUS_VARIABLE = f"{NATS_PREFIX}URL"
BUS_S = 5.0
NOBODY = "or use --assume-no-jobs if you know that no job is live"


class NobodyKnows(UserError):
    """No source of the live jobs answers now; a retry may help."""

    kind = "jobs_unknown"
    exit_code = EXIT_UNREACHABLE


@dataclass(frozen=True, slots=True)
class Known:
    claims: Claims
    source: str
    """Description of the source, for people."""
    master: str = ""
    """URL of the master, if one answered."""


async def known_jobs(fleet: Fleet, environ: Mapping[str, str]) -> Known:
    """The live jobs. Raises `NobodyKnows` if nothing answers, and `UserError` if the answer is from another fleet."""
    try:
        return await _reported_by_master(fleet, environ)
    except MasterAway as away:
        if not environ.get(BUS_VARIABLE):
            hint = f"{away.hint}; or set {BUS_VARIABLE} to its bus, {NOBODY}"
            raise NobodyKnows(f"The live jobs are unknown: {away}", hint) from away
    return await _read_from_bus(fleet, environ)


async def _reported_by_master(fleet: Fleet, environ: Mapping[str, str]) -> Known:
    async with connected(environ) as api:
        # Only a leader answers the first request; the second then goes to the same master.
        reported = await api.job_list()
        its = (await api.version()).fleet
        if its != fleet.name:
            has = f"has fleet {its}" if its else "reports no fleet"
            raise UserError(
                f"The master at {api.url} {has}, so it does not know the jobs of fleet {fleet.name}.",
                f"export TRADEWIND_API_URL=http://HOST:PORT of the master of {fleet.name}, {NOBODY}",
            )
        claims = {job.name: Claim.ENDED if has_ended(job) else Claim.LIVE for job in reported.jobs}
        return Known(claims | dict.fromkeys(reported.unread, Claim.UNREADABLE), f"the master at {api.url}", api.url)


async def _read_from_bus(fleet: Fleet, environ: Mapping[str, str]) -> Known:
    """The jobs in the records on the bus. A bus without a record of the fleet's clusters belongs to another fleet."""
    settings = read_settings(BusSettings, environ, {"name": f"reap/{os.getpid()}"}, NATS_PREFIX)
    try:
        bus = await Bus.connect(settings)
    except UserError as error:
        raise _bus_away(error.message) from error
    try:
        bucket = await bus.bucket(subjects.STATE_BUCKET, timeout_s=BUS_S)
        keys = [subjects.known_key(ClusterName(cluster.name)) for cluster in fleet.clusters]
        heard = [key for key in keys if await bucket.get(key) is not None]
        claims = await read_claims(bucket)
    except BusUnavailable as error:
        raise _bus_away(str(error)) from error
    finally:
        await bus.close()
    if not heard:
        raise UserError(
            f"The bus at {settings.url} has no cluster of fleet {fleet.name}, so it does not know its jobs.",
            f"set {BUS_VARIABLE} to the bus of its master, {NOBODY}",
        )
    return Known(claims, f"the records at {settings.url}")


def _bus_away(why: str) -> NobodyKnows:
    message = f"The live jobs are unknown: no master answers, and the bus does not answer: {why.rstrip('.')}."
    return NobodyKnows(message, f"start the master, {NOBODY}")
