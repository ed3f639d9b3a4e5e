"""The stored form of the memory: one key `memory.<zone>` for each zone.

The leader regularly writes the zones that have new observations (`controlplane/capacity/remembering.py`). The size of a
value is bounded: it has at most `MAX_ACCELERATORS` accelerators, each with a recent tally and one for each hour of the
day. An unreadable value is ignored, so that the zone starts again from the prior.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from controlplane.catalog.memory import AvailabilityKey, Memory, Priors, Seen, Tally
from messages.decoding import Undecodable, encode_readable
from messages.decoding import decode as decode_stored
from messages.subjects import parse_memory_key

VERSION = 1
"""Version of the stored form; a record of another version is unreadable. A longer tally keeps the version."""
DIGITS = 5
"""Significant digits of a stored number of a tally."""
MAX_ACCELERATORS = 32
"""Maximum number of accelerators in a stored zone."""

Hour = Annotated[int, Meta(ge=0, le=23)]
Count = Annotated[float, Meta(ge=0, le=1e15)]


class SeenRecord(Struct, frozen=True, omit_defaults=True):
    """The stored form of `Seen`: the tallies of one accelerator."""

    at: Count
    """Unix seconds of the newest observation, to which all tallies have faded."""
    late: tuple[Count, ...] = ()
    """The recent tally."""
    by_hour: dict[Hour, tuple[Count, ...]] = {}
    """Tallies by hour of the day (UTC)."""


class ZoneRecord(Struct, frozen=True):
    """The stored form of one zone, by accelerator."""

    version: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    accelerators: Annotated[dict[str, SeenRecord], Meta(max_length=MAX_ACCELERATORS)]


def encode_zone(memory: Memory, zone: str) -> bytes:
    """Encode a zone; of too many accelerators only those observed last. Raises `NotStorable`."""
    seen = [
        (availability_key.accelerator, known)
        for availability_key, known in memory.availability.items()
        if availability_key.zone == zone
    ]
    newest = sorted(seen, key=lambda each: (-each[1].at, each[0]))[:MAX_ACCELERATORS]
    record = ZoneRecord(VERSION, {name: _record(known) for name, known in sorted(newest)})
    return encode_readable(record, ZoneRecord)


def decode(entries: Mapping[str, bytes], priors: Priors | None = None) -> tuple[Memory, tuple[str, ...]]:
    """Decode entries by key. Returns the memory and a message for each entry that is unreadable and ignored."""
    availability: dict[AvailabilityKey, Seen] = {}
    problems: list[str] = []
    for key, value in sorted(entries.items()):
        zone = parse_memory_key(key)
        try:
            read = decode_stored(value, ZoneRecord)
        except Undecodable as error:
            problems.append(f"The memory of zone {zone} is unreadable and is ignored: {error}.")
            continue
        for accelerator, record in read.accelerators.items():
            availability[AvailabilityKey(zone, accelerator)] = _seen(record)
    return Memory(MappingProxyType(availability), priors or Priors()), tuple(problems)


def _record(seen: Seen) -> SeenRecord:
    return SeenRecord(
        round(seen.at, 3),
        _numbers(seen.late),
        {hour: _numbers(tally) for hour, tally in sorted(seen.by_hour.items())},
    )


def _seen(record: SeenRecord) -> Seen:
    by_hour = MappingProxyType({hour: _tally(numbers) for hour, numbers in record.by_hour.items()})
    return Seen(record.at, _tally(record.late), by_hour)


def _numbers(tally: Tally) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in msgspec.structs.astuple(tally))


def _tally(numbers: tuple[float, ...]) -> Tally:
    """Build a tally. Other releases may store more numbers, which are ignored, or fewer: the missing ones are 0."""
    return Tally(*numbers[: len(Tally.__struct_fields__)])
