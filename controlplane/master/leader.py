"""Who is the master: whoever wrote the leader's key last."""

import os
import socket

import msgspec

from messages import subjects
from messages.ids import Epoch
from runtime.bus import Bucket, Bus, Entry
from runtime.clock import Clock


class Leader(msgspec.Struct, frozen=True):
    """For people who look at the key."""

    master: str
    host: str
    pid: int
    since: float
    """Unix seconds."""


async def take_over(bus: Bus, bucket: Bucket, clock: Clock) -> Epoch:
    """From now on whoever was master before is not: it sees the key change, and workers refuse its epoch."""
    leader = Leader(bus.settings.name, socket.gethostname(), os.getpid(), clock.wall_s())
    return Epoch(await bucket.put(subjects.LEADER_KEY, msgspec.json.encode(leader)))


def is_claim_of(entry: Entry, master: str, epoch: Epoch) -> bool:
    """A bus that has lost its data may give the same revision to somebody else."""
    try:
        return entry.revision == epoch and msgspec.json.decode(entry.value, type=Leader).master == master
    except msgspec.DecodeError:
        return False
