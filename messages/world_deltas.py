"""Deltas between worlds: about 300 bytes for one lost worker. Pure.

A delta has the digests of its base and of its result, so that a wrong base and transmission errors are detected.
Members that remain keep their order; a member that moved is removed and added.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from messages.compact_worlds import (
    NO_RANK,
    Columns,
    Digest,
    HeldSamples,
    Place,
    RankSet,
    Runs,
    World,
    WorldReference,
    cut_runs,
    digest_of,
    encode_columns,
    merged,
    pack_ranks,
    unpack_ranges,
)
from messages.ids import Generation, JobName, Ranks, Slots, WorkerId
from messages.worlds import Assignment


class Added(Struct, frozen=True):
    """Consecutive new members in one place."""

    at: Ranks
    """The group rank of the first member."""
    place: Place
    ranks: Slots
    """Ranks of each member."""
    workers: tuple[WorkerId, ...]
    addresses: tuple[str, ...]


class AssignmentDelta(Struct, frozen=True, omit_defaults=True):
    """An assignment as changes to another world."""

    job: JobName
    generation: Generation
    base: Digest
    """The world that the delta starts from."""
    world: WorldReference
    """The world that the delta results in."""
    removed: RankSet = ""
    """Removed members, as group ranks in the base."""
    added: tuple[Added, ...] = ()
    changed: dict[str, Any] = {}
    """New values of fields of `Columns.head`."""
    dropped: tuple[str, ...] = ()
    """Fields of `Columns.head` that return to their defaults."""
    shares: Runs = ()
    previous: Runs | None = None
    """None: in a live world, the rank that each member had in the base."""
    leaving_workers: tuple[WorkerId, ...] | None = None
    """None: in a live world, the removed members."""
    laggards: RankSet = ""
    held: HeldSamples | None = None


class WrongBase(ValueError):
    """Raised if a delta does not start from this world, or its result has the wrong digest."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Members that are consecutive in base and result: group ranks from `first` to before `last`."""

    first: int
    last: int


_Part = _Kept | Added
_ABSENT = object()


def delta_of(base: World, world: World, reference: WorldReference) -> AssignmentDelta | None:
    """Returns the delta from base to world; None if one of them does not fit columns."""
    old, new = base.columns, world.columns
    if not old.workers or not new.workers:
        return None
    parts = list(_parts(old, new))
    derived = _derived(old, parts)
    old_head, new_head = _fields(old.head), _fields(new.head)
    in_place = bool(new.previous)
    return AssignmentDelta(
        job=new.head.job,
        generation=new.head.generation,
        base=base.digest,
        world=reference,
        removed=pack_ranks(_removed(parts, len(old.workers)), len(old.workers)),
        added=tuple(part for part in parts if isinstance(part, Added)),
        changed={name: value for name, value in new_head.items() if old_head.get(name, _ABSENT) != value},
        dropped=tuple(name for name in old_head if name not in new_head),
        shares=new.shares,
        previous=None if in_place and new.previous == derived else new.previous,
        leaving_workers=None
        if in_place and new.leaving_workers == _leaving_workers(old, parts)
        else new.leaving_workers,
        laggards=new.laggards,
        held=new.held,
    )


def apply(delta: AssignmentDelta, base: World) -> World:
    """Returns the result of the delta. Raises `WrongBase`; then the world must be fetched."""
    if delta.base != base.digest:
        raise WrongBase(f"it starts from {delta.base}, this is {base.digest}")
    try:
        columns = _changed(delta, base.columns)
    except (ValueError, IndexError, TypeError, msgspec.MsgspecError) as error:
        raise WrongBase(f"it cannot be applied: {error}") from error
    document = encode_columns(columns)
    digest = digest_of(document)
    if digest != delta.world.digest:
        raise WrongBase(f"it results in {digest}, not in {delta.world.digest}")
    return World(columns, document, digest)


def _changed(delta: AssignmentDelta, old: Columns) -> Columns:
    parts = list(_parts_of(delta, len(old.workers)))
    fields = _fields(old.head) | delta.changed
    kept = {name: value for name, value in fields.items() if name not in delta.dropped}
    head = msgspec.convert(kept, Assignment)
    places: dict[Place, int] = {}
    place_of = merged(_place_runs(old, parts, places))
    return Columns(
        head=head,
        workers=_joined(old.workers, parts, "workers"),
        addresses=_joined(old.addresses, parts, "addresses"),
        places=tuple(places),
        place_of=place_of,
        ranks=merged(_rank_runs(old, parts)),
        shares=delta.shares,
        previous=_derived(old, parts) if delta.previous is None else delta.previous,
        leaving_workers=_leaving_workers(old, parts) if delta.leaving_workers is None else delta.leaving_workers,
        laggards=delta.laggards,
        held=delta.held,
    )


def _parts(old: Columns, new: Columns) -> Iterator[_Part]:
    """Yields the parts of the new world, in order."""
    before = {member[0]: number for number, member in enumerate(_members(old))}
    members_before = list(_members(old))
    first = last = 0
    adding: list[tuple[WorkerId, str, int, Place]] = []
    at = 0
    for number, member in enumerate(_members(new)):
        known = before.get(member[0], -1)
        if known < last or members_before[known] != member:
            if last > first:
                yield _Kept(first, last)
                first = last
            at = at if adding else number
            adding.append(member)
            continue
        if adding:
            yield from _added(at, adding)
            adding = []
        elif known != last and last > first:
            yield _Kept(first, last)
        if known != last or first == last:
            first = known
        last = known + 1
    if last > first:
        yield _Kept(first, last)
    yield from _added(at, adding)


def _members(columns: Columns) -> Iterator[tuple[WorkerId, str, int, Place]]:
    ranks = (value for value, count in columns.ranks for _ in range(count))
    places = (columns.places[value] for value, count in columns.place_of for _ in range(count))
    return zip(columns.workers, columns.addresses, ranks, places, strict=True)


def _added(at: int, members: list[tuple[WorkerId, str, int, Place]]) -> Iterator[Added]:
    start = 0
    for end in range(1, len(members) + 1):
        if end == len(members) or members[end][2:] != members[start][2:]:
            same = members[start:end]
            yield Added(
                at + start,
                same[0][3],
                same[0][2],
                tuple(member[0] for member in same),
                tuple(member[1] for member in same),
            )
            start = end


def _removed(parts: Iterable[_Part], count: int) -> Iterator[int]:
    end = 0
    for part in parts:
        if isinstance(part, _Kept):
            yield from range(end, part.first)
            end = part.last
    yield from range(end, count)


def _parts_of(delta: AssignmentDelta, count: int) -> Iterator[_Part]:
    kept = list(_gaps(unpack_ranges(delta.removed, count), count))
    length = 0
    for added in delta.added:
        while length < added.at:
            if not kept:
                raise ValueError(f"members are added at {added.at} of {length}")
            part = kept.pop(0)
            wanted = added.at - length
            if part.last - part.first > wanted:
                kept.insert(0, _Kept(part.first + wanted, part.last))
                part = _Kept(part.first, part.first + wanted)
            length += part.last - part.first
            yield part
        if length != added.at or len(added.workers) != len(added.addresses):
            raise ValueError(f"members are added at {added.at} of {length}")
        length += len(added.workers)
        yield added
    yield from kept


def _gaps(removed: Iterable[tuple[int, int]], count: int) -> Iterator[_Kept]:
    end = 0
    for first, last in removed:
        if first > end:
            yield _Kept(end, first)
        end = last
    if count > end:
        yield _Kept(end, count)


def _joined(old: tuple[Any, ...], parts: Iterable[_Part], name: str) -> tuple[Any, ...]:
    found: list[Any] = []
    for part in parts:
        found += old[part.first : part.last] if isinstance(part, _Kept) else getattr(part, name)
    return tuple(found)


def _rank_runs(old: Columns, parts: Iterable[_Part]) -> Iterator[tuple[int, int]]:
    for part in parts:
        if isinstance(part, _Kept):
            yield from cut_runs(old.ranks, part.first, part.last)
        else:
            yield part.ranks, len(part.workers)


def _place_runs(old: Columns, parts: Iterable[_Part], places: dict[Place, int]) -> Iterator[tuple[int, int]]:
    """Yields runs of places. Fills `places` in the order in which members first name them."""
    for part in parts:
        if isinstance(part, _Kept):
            for value, count in cut_runs(old.place_of, part.first, part.last):
                yield places.setdefault(old.places[value], len(places)), count
        else:
            yield places.setdefault(part.place, len(places)), len(part.workers)


def _derived(old: Columns, parts: Iterable[_Part]) -> Runs:
    """Returns, for each rank, its rank in the base."""

    def runs() -> Iterator[tuple[int, int]]:
        at, first_rank = 0, 0
        for part in parts:
            if isinstance(part, Added):
                yield NO_RANK, part.ranks * len(part.workers)
                continue
            first_rank += sum(value * count for value, count in cut_runs(old.ranks, at, part.first))
            held = sum(value * count for value, count in cut_runs(old.ranks, part.first, part.last))
            yield first_rank, held
            at, first_rank = part.last, first_rank + held

    return merged(runs(), counting=True)


def _leaving_workers(old: Columns, parts: list[_Part]) -> tuple[WorkerId, ...]:
    """Returns the removed workers that were not added elsewhere in the world."""
    moved = {worker for part in parts if isinstance(part, Added) for worker in part.workers}
    return tuple(old.workers[n] for n in _removed(parts, len(old.workers)) if old.workers[n] not in moved)


def _fields(head: Assignment) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(head)
    return fields
