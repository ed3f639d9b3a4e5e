"""Worlds as columns: a compact document for an assignment with many members, and its digest.

One loss among ten thousand members must not cost a megabyte. So an assignment has a second form: long parts are stored
by column, and equal or consecutive values as runs. The bytes of that form are the same in all processes with the same
assignment, so their digest identifies the world. Parts that do not fit the columns are in `head`.
"""

import base64
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, chain, groupby, repeat
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from messages.decoding import Decoder, NotStorable, Undecodable
from messages.ids import ClusterName, Counted, Epoch, Generation, JobName, Range, Rank, WorkerId
from messages.worlds import Assignment, LiveWorld, Member

DIGEST_BYTES = 16
CHUNK_BYTES = 256_000
"""Maximum bytes of a stored chunk of a document."""
DOCUMENT_AT_MOST = 256 * 1024 * 1024
"""Maximum bytes of a document, more than the largest world needs."""
MEMBERS_AT_MOST = 1_000_000

Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Count = Annotated[int, Meta(ge=1, le=MEMBERS_AT_MOST)]
Runs = tuple[tuple[Annotated[int, Meta(ge=-1, le=2**53)], Count], ...]
"""Pairs of a value and a length: the value repeats; in `previous`, numbers count up from it."""
RankSet = str
"""Ranges such as `0-4,7`, or `~` and a bitmap in base64 if that is shorter."""
Place = tuple[ClusterName, str, str]
"""Cluster, region and zone."""

NO_RANK = -1


class WorldReference(Struct, frozen=True, omit_defaults=True):
    """A reference to a stored world."""

    generation: Generation
    digest: Digest
    epoch: Epoch = Epoch(0)
    """The epoch of the master that stored the chunks. Only a master of this or a later epoch removes them."""
    chunks: Annotated[int, Meta(ge=0, le=2048)] = 0
    """Number of chunks; 0 if the world is in the job's record itself."""
    size: Annotated[int, Meta(ge=0, le=DOCUMENT_AT_MOST)] = 0
    """Bytes of the document."""
    members: Annotated[int, Meta(ge=0, le=MEMBERS_AT_MOST)] = 0


class StoredAssignment(Struct, frozen=True):
    """An assignment whose world is stored; the receiver fetches it."""

    job: JobName
    generation: Generation
    world: WorldReference


class StoredInvite(Struct, frozen=True, omit_defaults=True):
    """An `Invite` whose world is stored; the receiver fetches it."""

    job: JobName
    workers: tuple[WorkerId, ...]
    world: WorldReference
    why: str
    terms: str = ""


class HeldSamples(Struct, frozen=True, omit_defaults=True):
    """`LiveWorld.held` in compact form: most ranks hold their whole share of the step, or nothing."""

    even: Counted = 0
    more: Counted = 0
    """The share of rank p of the previous world: `even` samples, and one more if p is below `more`."""
    whole: RankSet = ""
    others: tuple[tuple[Rank, tuple[Range, ...]], ...] = ()


class Columns(Struct, frozen=True, omit_defaults=True):
    head: Assignment
    """The assignment without the values in the columns."""
    workers: tuple[WorkerId, ...] = ()
    addresses: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    """Places in the order in which members first name them."""
    place_of: Runs = ()
    ranks: Runs = ()
    shares: Runs = ()
    previous: Runs = ()
    leaving_workers: tuple[WorkerId, ...] = ()
    laggards: RankSet = ""
    held: HeldSamples | None = None


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder: Decoder[Columns] = Decoder(Columns)
_head_decoder: Decoder[Assignment] = Decoder(Assignment)


class World(Struct, frozen=True):
    """A world as columns, the bytes of the columns, and the digest of the bytes."""

    columns: Columns
    document: bytes
    digest: Digest


def world_of(assignment: Assignment) -> World:
    """Converts an assignment. Raises `NotStorable` if it could not be read back."""
    columns = columns_of(assignment)
    document = encode_columns(columns)
    return World(columns, document, digest_of(document))


def digest_of(document: bytes) -> Digest:
    return blake2b(document, digest_size=DIGEST_BYTES).hexdigest()


def encode_columns(columns: Columns) -> bytes:
    return _encoder.encode(columns)


def decode_document(document: bytes) -> World:
    """Decodes a document. Raises `Undecodable`."""
    return World(_decoder.decode(document), document, digest_of(document))


def to_chunks(document: bytes, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Compresses a document into chunks, in order."""
    packed = zlib.compress(document, 1)
    return [packed[start : start + chunk_bytes] for start in range(0, len(packed), chunk_bytes)]


def from_chunks(chunks: Iterable[bytes], reference: WorldReference) -> World:
    """Decodes stored chunks. Raises `Undecodable` if they do not match the reference."""
    unpacking = zlib.decompressobj()
    try:
        document = unpacking.decompress(b"".join(chunks), reference.size + 1)
    except zlib.error as error:
        raise Undecodable(f"the chunks of world {reference.digest} are damaged: {error}") from error
    if digest_of(document) != reference.digest:
        raise Undecodable(f"the chunks of world {reference.digest} have another digest")
    return decode_document(document)


# From an assignment to columns and back


def columns_of(assignment: Assignment) -> Columns:
    """Converts an assignment to columns. Raises `NotStorable`."""
    members, live = assignment.members, assignment.live
    if not _is_in_order(assignment):
        return Columns(_normal(assignment))
    given = assignment.hyperparameters
    head = structs.replace(assignment, members=(), hyperparameters=structs.replace(given, shares=()))
    columns = Columns(
        head,
        workers=tuple([member.worker for member in members]),
        addresses=tuple([member.address for member in members]),
        ranks=runs_of([member.ranks for member in members]),
        shares=runs_of(given.shares),
    )
    of_members = [(member.cluster, member.region, member.zone) for member in members]
    places = tuple(dict.fromkeys(of_members))
    index = {place: number for number, place in enumerate(places)}
    columns = structs.replace(columns, places=places, place_of=runs_of([index[place] for place in of_members]))
    if live is not None and _fits(live, assignment.world_size):
        left = LiveWorld(live.entry, (), resume=live.resume, source=live.source)
        columns = structs.replace(
            columns,
            head=structs.replace(head, live=left),
            previous=counting_runs(live.previous),
            leaving_workers=live.leaving_workers,
            laggards=pack_ranks(live.laggards, assignment.world_size),
            held=_pack_held(live, assignment.world_size),
        )
    return structs.replace(columns, head=_normal(columns.head))


def assignment_of(columns: Columns) -> Assignment:
    """Converts columns to an assignment. Raises `Undecodable` if they contradict each other."""
    head, count = columns.head, len(columns.workers)
    if count == 0:
        return head
    try:
        ranks = list(_spread(columns.ranks, count))
        places = [columns.places[number] for number in _spread(columns.place_of, count)]
        clusters, regions, zones = zip(*places, strict=True)
        if len(columns.addresses) != count or sum(ranks) != head.world_size:
            raise ValueError("addresses or ranks do not match the members")
        firsts = accumulate(chain((0,), ranks))
        members = tuple(
            map(Member, columns.workers, clusters, regions, zones, columns.addresses, range(count), firsts, ranks)
        )
        given = head.hyperparameters
        if columns.shares:
            shares = tuple(_spread(columns.shares, head.world_size))
            given = structs.replace(given, shares=shares)
        return structs.replace(head, members=members, hyperparameters=given, live=_live_of(columns))
    except (ValueError, IndexError) as error:
        raise Undecodable(f"the columns of generation {head.generation}: {error}") from error


def _live_of(columns: Columns) -> LiveWorld | None:
    head = columns.head
    if head.live is None or not columns.previous:
        return head.live
    previous = list(_count_up(columns.previous, head.world_size))
    return structs.replace(
        head.live,
        previous=tuple(previous),
        leaving_workers=columns.leaving_workers,
        laggards=tuple(map(Rank, unpack_ranks(columns.laggards, head.world_size))),
        held=() if columns.held is None else _unpack_held(columns.held, previous),
    )


def _normal(head: Assignment) -> Assignment:
    """Returns the head as readers decode it: 5 and 5.0 are one number in JSON."""
    try:
        return _head_decoder.decode(_encoder.encode(head))
    except (Undecodable, msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise NotStorable(f"it could not be read back: {error}") from error


def _is_in_order(assignment: Assignment) -> bool:
    """True if members are in the order of group ranks and hold all ranks, and all ranks have shares, or none."""
    first = 0
    for number, member in enumerate(assignment.members):
        if member.group_rank != number or member.first_rank != first:
            return False
        first += member.ranks
    shares = assignment.hyperparameters.shares
    return bool(assignment.members) and first == assignment.world_size and len(shares) in (0, first)


def _fits(live: LiveWorld, size: int) -> bool:
    in_order = list(live.laggards) == sorted(set(live.laggards)) and all(rank < size for rank in live.laggards)
    return len(live.previous) == size and len(live.held) in (0, size) and in_order


# Runs


def runs_of(values: Iterable[int]) -> Runs:
    return tuple((value, len(list(same))) for value, same in groupby(values))


def counting_runs(values: Iterable[int]) -> Runs:
    """Returns runs of numbers that count up. −1 repeats itself."""
    runs: list[tuple[int, int]] = []
    first, count = 0, 0
    for value in values:
        if count and value == (first if first < 0 else first + count) and (value < 0) == (first < 0):
            count += 1
            continue
        if count:
            runs.append((first, count))
        first, count = value, 1
    return (*runs, (first, count)) if count else ()


def merged(runs: Iterable[tuple[int, int]], *, counting: bool = False) -> Runs:
    """Joins neighbouring runs that continue each other."""
    found: list[tuple[int, int]] = []
    for value, count in runs:
        if found:
            last, times = found[-1]
            follows = value == last if not counting or last < 0 or value < 0 else value == last + times
            if follows:
                found[-1] = last, times + count
                continue
        found.append((value, count))
    return tuple(found)


def cut_runs(runs: Runs, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yields the runs of the values from `first` to before `last`."""
    start = 0
    for value, count in runs:
        low, high = max(first, start), min(last, start + count)
        if low < high:
            yield value, high - low
        start += count
        if start >= last:
            return


def _spread(runs: Runs, length: int) -> Iterator[int]:
    _check_length(runs, length)
    return chain.from_iterable(repeat(value, count) for value, count in runs)


def _count_up(runs: Runs, length: int) -> Iterator[int]:
    _check_length(runs, length)
    return chain.from_iterable(
        repeat(NO_RANK, count) if first < 0 else range(first, first + count) for first, count in runs
    )


def _check_length(runs: Runs, length: int) -> None:
    found = sum(count for _, count in runs)
    if found != length or length > MEMBERS_AT_MOST:
        raise ValueError(f"runs have {found} values, but {length} are needed")


# Sets of ranks


def pack_ranks(ranks: Iterable[int], size: int) -> RankSet:
    """Packs ranks below `size`, in ascending order."""
    ranges = [(first, first + count - 1) for first, count in counting_runs(ranks)]
    text = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)
    bitmap_length = 1 + 4 * ((size + 23) // 24)
    return text if len(text) <= bitmap_length else _pack_bitmap(ranges, size)


def unpack_ranks(packed: RankSet, size: int) -> list[int]:
    """Returns the ranks in ascending order. Raises `ValueError`."""
    return [rank for first, last in unpack_ranges(packed, size) for rank in range(first, last)]


def unpack_ranges(packed: RankSet, size: int) -> list[Range]:
    """Returns ranges in ascending order, each from the first to before the last. Raises `ValueError`."""
    if packed.startswith("~"):
        return _unpack_bitmap(packed, size)
    ranges = []
    end = 0
    for part in packed.split(",") if packed else ():
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low) + 1
        if not end <= first < last <= size:
            raise ValueError(f"{part[:50]} is not a range of ranks below {size}")
        ranges.append((first, last))
        end = last
    return ranges


def _pack_bitmap(ranges: Iterable[tuple[int, int]], size: int) -> RankSet:
    bits = 0
    for first, last in ranges:
        bits |= ((1 << (last - first + 1)) - 1) << first
    return "~" + base64.b64encode(bits.to_bytes((size + 7) // 8, "little")).decode()


def _unpack_bitmap(packed: RankSet, size: int) -> list[Range]:
    bits = bin(int.from_bytes(base64.b64decode(packed[1:], validate=True), "little"))[:1:-1]
    if len(bits.rstrip("0")) > size:
        raise ValueError(f"a bitmap names ranks above {size}")
    ranges = []
    end = 0
    while (first := bits.find("1", end)) >= 0:
        end = bits.find("0", first)
        end = len(bits) if end < 0 else end
        ranges.append((first, end))
    return ranges


# Samples


def _pack_held(live: LiveWorld, size: int) -> HeldSamples | None:
    if not live.held:
        return None
    even, more = _usual_shares(live)
    whole: list[int] = []
    others: list[tuple[Rank, tuple[Range, ...]]] = []
    for rank, (before, held) in enumerate(zip(live.previous, live.held, strict=True)):
        if before >= 0 and len(held) == 1 and held[0] == _share(before, even, more):
            whole.append(rank)
        elif held:
            others.append((Rank(rank), held))
    return HeldSamples(even, more, pack_ranks(whole, size), tuple(others))


def _usual_shares(live: LiveWorld) -> tuple[int, int]:
    """Returns how the previous world shared the batch, as most held samples show."""
    found: Counter[tuple[int, int]] = Counter()
    for before, held in zip(live.previous, live.held, strict=True):
        if before >= 0 and len(held) == 1:
            first, last = held[0]
            found[last - first, first - before * (last - first)] += 1
    sensible = [(times, even, more) for (even, more), times in found.items() if even > 0 and more >= 0]
    # Ranks with one more sample look like even shares themselves, so uneven shares come first.
    uneven = max((each for each in sensible if each[2] > 0), default=None)
    best = max(sensible, default=None)
    chosen = uneven if uneven is not None and best is not None and _explains(uneven, best) else best
    return (chosen[1], chosen[2]) if chosen is not None else (0, 0)


def _explains(uneven: tuple[int, int, int], best: tuple[int, int, int]) -> bool:
    return uneven == best or (best[1], best[2]) == (uneven[1] + 1, 0)


def _share(before: int, even: int, more: int) -> Range:
    if before < more:
        return before * (even + 1), (before + 1) * (even + 1)
    first = before * even + more
    return first, first + even


def _unpack_held(packed: HeldSamples, previous: Sequence[int]) -> tuple[tuple[Range, ...], ...]:
    held: list[tuple[Range, ...]] = [()] * len(previous)
    even, more = packed.even, packed.more
    for first, last in unpack_ranges(packed.whole, len(previous)):
        held[first:last] = [(_share(before, even, more),) for before in previous[first:last]]
    for rank, ranges in packed.others:
        held[rank] = ranges
    return tuple(held)
