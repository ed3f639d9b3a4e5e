"""The claim of each job on its cloud resources, read from the master's records on the bus."""

from controlplane.reaper.ownership_labels import bus_of
from controlplane.reaper.state import Claim, Records
from messages import subjects
from messages.decoding import Undecodable, decode
from messages.ids import JobName
from messages.records import RecordPhase
from runtime.bus import Bucket


async def read_claims(bucket: Bucket) -> dict[JobName, Claim]:
    """The claims of all jobs; raises `BusUnavailable`. A job without a record was just submitted, and lives."""
    claims: dict[JobName, Claim] = {}
    for key in await bucket.entries(subjects.JOB_SPECS):
        name = subjects.parse_spec_key(key)
        if name is not None:
            world = await bucket.get(subjects.record_key(name))
            claims[name] = claim_of(world.value) if world is not None else Claim.LIVE
    return claims


async def read_records(bucket: Bucket) -> Records:
    """The claims of all jobs, and the bus that they are on; raises `BusUnavailable`."""
    claims = await read_claims(bucket)
    # Read last: a bus that lost its data while the claims were read is another one by now.
    return Records(claims, bus_of(await bucket.made_at()))


def claim_of(world: bytes) -> Claim:
    try:
        phase = decode(world, RecordPhase).phase
    except Undecodable:
        return Claim.UNREADABLE
    return Claim.ENDED if phase.ended else Claim.LIVE
