"""The memory as it is kept in KV: one key `memory.<zone>` for each zone, written when that zone was learned about.

A value is some kilobytes at most: a zone has a handful of accelerators, each with 24 hours. What cannot be read is
forgotten, which costs a prior and no more.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from controlplane.catalog.memory import Memory, Priors, Seen, Shelf, Tally
from messages.decoding import Undecodable, encode_readable
from messages.decoding import decode as decode_stored

PREFIX = "memory."
VERSION = 1
DIGITS = 5
MAX_ACCELERATORS = 32

Hour = Annotated[int, Meta(ge=0, le=23)]
Count = Annotated[float, Meta(ge=0, le=1e15)]


class SeenRecord(Struct, frozen=True, omit_defaults=True):
    at: Count
    late: tuple[Count, ...] = ()
    by_hour: dict[Hour, tuple[Count, ...]] = {}


class ZoneRecord(Struct, frozen=True):
    version: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    accelerators: Annotated[dict[str, SeenRecord], Meta(max_length=MAX_ACCELERATORS)]


def key_of(zone: str) -> str:
    return PREFIX + zone


def encode_zone(memory: Memory, zone: str) -> bytes:
    """The newest accelerators, if there are absurdly many. Raises `Unreadable`."""
    seen = [(shelf.accelerator, known) for shelf, known in memory.shelves.items() if shelf.zone == zone]
    newest = sorted(seen, key=lambda each: (-each[1].at, each[0]))[:MAX_ACCELERATORS]
    record = ZoneRecord(VERSION, {name: _record(known) for name, known in sorted(newest)})
    return encode_readable(record, ZoneRecord)


def decode(entries: Mapping[str, bytes], priors: Priors | None = None) -> tuple[Memory, tuple[str, ...]]:
    """By key. With one sentence for each entry that cannot be used."""
    shelves: dict[Shelf, Seen] = {}
    problems: list[str] = []
    for key, value in sorted(entries.items()):
        try:
            read = decode_stored(value, ZoneRecord)
        except Undecodable as error:
            problems.append(f"What was seen of {key.removeprefix(PREFIX)} cannot be read and is forgotten: {error}.")
            continue
        for accelerator, record in read.accelerators.items():
            shelves[Shelf(key.removeprefix(PREFIX), accelerator)] = _seen(record)
    return Memory(MappingProxyType(shelves), priors or Priors()), tuple(problems)


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
    """A newer version may count more, an older one counted less."""
    return Tally(*numbers[: len(Tally.__struct_fields__)])
