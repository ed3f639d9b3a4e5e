"""What each job still claims in the cloud, as the master's records on the bus say."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.reaper.lease import bus_of
from messages import subjects
from messages.decoding import Undecodable, decode
from messages.ids import JobName
from messages.records import RecordPhase
from runtime.bus import Bucket


class Claim(StrEnum):
    LIVE = "live"
    """It answers for what carries its name."""
    UNREADABLE = "unreadable"
    """There is a record of it that cannot be read: it may live."""
    ENDING = "ending"
    """It has ended, and its master is removing what it had."""
    ENDED = "ended"


Claims = Mapping[JobName, Claim]
"""Of all jobs that there are records of; of others nobody knows."""


@dataclass(frozen=True, slots=True)
class Records:
    claims: Claims
    bus: str
    """That they are on, as in the label of what was asked for over it."""


async def read_claims(bucket: Bucket) -> dict[JobName, Claim]:
    """Raises `BusUnavailable`. A job that was just submitted has no world yet, and lives."""
    claims: dict[JobName, Claim] = {}
    for key in await bucket.entries(subjects.JOB_SPECS):
        name = subjects.parse_spec_key(key)
        if name is not None:
            world = await bucket.get(subjects.world_key(name))
            claims[name] = claim_of(world.value) if world is not None else Claim.LIVE
    return claims


async def read_records(bucket: Bucket) -> Records:
    """Raises `BusUnavailable`."""
    claims = await read_claims(bucket)
    # Asked last: a bus that lost its data while they were read is another one by now.
    return Records(claims, bus_of(await bucket.made_at()))


def claim_of(world: bytes) -> Claim:
    try:
        phase = decode(world, RecordPhase).phase
    except Undecodable:
        return Claim.UNREADABLE
    return Claim.ENDED if phase.ended else Claim.LIVE
