"""Which jobs live, from somebody who must know: the master that has the fleet, or its records on the bus."""

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
from runtime.settings import NATS_PREFIX, BusSettings, read_settings
from tradewind.client.api import connected
from tradewind.client.errors import MasterAway
from tradewind.client.watch import has_ended

BUS_VARIABLE = f"{NATS_PREFIX}URL"
BUS_S = 5.0
NOBODY = "or say --assume-no-jobs if you know that none lives"


class NobodyKnows(UserError):
    """Just now: whoever does not answer may do so later."""


@dataclass(frozen=True, slots=True)
class Known:
    claims: Claims
    source: str
    """For people: who said so."""
    master: str = ""
    """Where it is, if one answered."""


async def known_jobs(fleet: Fleet, environ: Mapping[str, str]) -> Known:
    """Raises `NobodyKnows` where nobody answers, and `UserError` where whoever does cannot know."""
    try:
        return await _told_by_master(fleet, environ)
    except MasterAway as away:
        if not environ.get(BUS_VARIABLE):
            hint = f"{away.hint}; or set {BUS_VARIABLE} to its bus, {NOBODY}"
            raise NobodyKnows(f"Nobody tells which jobs live: {away}", hint) from away
    return await _read_from_bus(fleet, environ)


async def _told_by_master(fleet: Fleet, environ: Mapping[str, str]) -> Known:
    async with connected(environ) as api:
        # First what only a leader answers: `/version` is then asked of the same one.
        told = await api.job_list()
        its = (await api.version()).fleet
        if its != fleet.name:
            has = f"tells that it has fleet {its}" if its else "does not tell that it has any fleet"
            raise UserError(
                f"The master at {api.url} {has}, so it cannot know which jobs of fleet {fleet.name} live.",
                f"export TRADEWIND_API_URL=http://HOST:PORT of the master of {fleet.name}, {NOBODY}",
            )
        claims = {job.name: Claim.ENDED if has_ended(job) else Claim.LIVE for job in told.jobs}
        return Known(claims | dict.fromkeys(told.unread, Claim.UNREADABLE), f"the master at {api.url}", api.url)


async def _read_from_bus(fleet: Fleet, environ: Mapping[str, str]) -> Known:
    """A bus that has never heard of the fleet's clusters is that of others: its silence about jobs means nothing."""
    settings = read_settings(BusSettings, environ, {"name": f"reap/{os.getpid()}"}, NATS_PREFIX)
    try:
        bus = await Bus.connect(settings)
    except UserError as error:
        raise _bus_away(error.sentence) from error
    try:
        bucket = await bus.bucket(subjects.STATE_BUCKET, timeout_s=BUS_S)
        names = [ClusterName(cluster.name) for cluster in fleet.clusters]
        keys = [key for name in names for key in (subjects.wanted_key(name), subjects.known_key(name))]
        heard = [key for key in keys if await bucket.get(key) is not None]
        claims = await read_claims(bucket)
    except BusUnavailable as error:
        raise _bus_away(str(error)) from error
    finally:
        await bus.close()
    if not heard:
        raise UserError(
            f"The bus at {settings.url} knows no cluster of fleet {fleet.name}, so it cannot know its jobs.",
            f"set {BUS_VARIABLE} to the bus of its master, {NOBODY}",
        )
    return Known(claims, f"the records at {settings.url}")


def _bus_away(why: str) -> NobodyKnows:
    sentence = f"Nobody tells which jobs live: no master answers, and neither does its bus: {why.rstrip('.')}."
    return NobodyKnows(sentence, f"start the master, {NOBODY}")
