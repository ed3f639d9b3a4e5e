"""Columns and deltas of random worlds lead to the same assignment, and what does not fit together is noticed."""

import random

import msgspec
import pytest
from msgspec import structs

from messages import compact_worlds, world_deltas
from messages.compact_worlds import World, WorldReference, assignment_of, from_chunks, to_chunks, world_of
from messages.decoding import NotStorable, Undecodable
from messages.ids import Generation, Rank
from messages.world_deltas import AssignmentDelta, WrongBase, apply, delta_of
from messages.worlds import Assignment
from tests.messages.worlds import a_seat, a_world, changed, planned, repaired, seats_for

SEEDS = 200


def as_received(assignment: Assignment) -> Assignment:
    return msgspec.json.decode(msgspec.json.encode(assignment), type=Assignment)


def reference_to(world: World) -> WorldReference:
    return WorldReference(world.columns.head.generation, world.digest, size=len(world.document))


def a_delta(base: World, world: World) -> AssignmentDelta:
    delta = delta_of(base, world, reference_to(world))
    assert delta is not None
    return msgspec.json.decode(msgspec.json.encode(delta), type=AssignmentDelta)


def two_worlds(seed: int) -> tuple[Assignment, Assignment]:
    chance = random.Random(seed)
    seats = seats_for(chance, chance.choice((1, 2, 8, 40)), chance.choice((None, 1, 8)))
    batch = chance.choice((None, 64, 1000))
    base = a_world(3, seats, batch=batch)
    after = changed(chance, seats)
    match chance.choice(("repair", "plan", "restart")):
        case "repair":
            return base, repaired(chance, base, 4, after)
        case "plan":
            return base, planned(base, 4, after)
        case _:
            return base, a_world(5, after, batch=batch, restarts=1)


def test_a_document_is_read_back_as_the_assignment() -> None:
    for seed in range(SEEDS):
        for assignment in two_worlds(seed):
            world = world_of(assignment)
            found = from_chunks(to_chunks(world.document, chunk_bytes=100), reference_to(world))
            assert assignment_of(found.columns) == as_received(assignment)
            assert found.digest == world.digest


def test_a_delta_leads_to_the_new_world() -> None:
    for seed in range(SEEDS):
        old, new = two_worlds(seed)
        base, world = world_of(old), world_of(new)
        held_by_a_worker = world_of(as_received(old))
        assert held_by_a_worker.digest == base.digest
        found = apply(a_delta(base, world), held_by_a_worker)
        assert assignment_of(found.columns) == as_received(new)
        assert found.digest == world.digest == world_of(assignment_of(found.columns)).digest


def test_a_delta_that_starts_from_another_world_is_noticed() -> None:
    for seed in range(SEEDS):
        old, new = two_worlds(seed)
        base, world = world_of(old), world_of(new)
        other = world_of(structs.replace(old, restart_count=old.restart_count + 1))
        with pytest.raises(WrongBase, match="starts from"):
            apply(a_delta(base, world), other)


def test_a_delta_that_does_not_lead_to_its_digest_is_noticed() -> None:
    """Holds even if another world has the digest of the base."""
    for seed in range(SEEDS):
        old, new = two_worlds(seed)
        base, world = world_of(old), world_of(new)
        other = world_of(a_world(3, [*seats_for(random.Random(seed), 3), a_seat(random.Random(seed + 1))]))
        with pytest.raises(WrongBase):
            apply(a_delta(base, world), structs.replace(other, digest=base.digest))
        with pytest.raises(WrongBase):
            apply(structs.replace(a_delta(base, world), shares=((1, 1),)), base)


def test_one_loss_among_many_takes_a_few_hundred_bytes() -> None:
    chance = random.Random(1)
    seats = seats_for(chance, 3000, 8)
    base = a_world(3, seats, batch=48_000)
    new = repaired(random.Random(3), base, 4, seats[:1000] + seats[1001:])
    live = new.live
    assert live is not None
    new = structs.replace(new, live=structs.replace(live, laggards=(), held=()))
    delta = a_delta(world_of(base), world_of(new))
    assert len(msgspec.json.encode(delta)) < 600
    assert delta.previous is None
    assert delta.leaving_workers is None


def test_ranks_at_random_are_a_bitmap_and_neighbours_are_ranges() -> None:
    chance = random.Random(5)
    some = sorted(chance.sample(range(1000), 500))
    assert compact_worlds.pack_ranks(some, 1000).startswith("~")
    assert compact_worlds.unpack_ranks(compact_worlds.pack_ranks(some, 1000), 1000) == some
    assert compact_worlds.pack_ranks([0, 1, 2, 7], 1000) == "0-2,7"
    assert compact_worlds.unpack_ranks("", 1000) == []


@pytest.mark.parametrize("packed", ["5", "3-9", "2-1", "x", "1,0", "~!!", "~/w==", "0-999999999999"])
def test_a_set_of_ranks_outside_the_world_is_refused(packed: str) -> None:
    with pytest.raises(ValueError):
        compact_worlds.unpack_ranks(packed, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": ((1, 999_999),)},
        {"place_of": ((7, 2),)},
        {"addresses": ("10.0.0.1",)},
        {"shares": ((1, 3),)},
    ],
)
def test_columns_that_contradict_each_other_are_refused(change: dict[str, object]) -> None:
    columns = world_of(a_world(1, seats_for(random.Random(1), 2, 1))).columns
    with pytest.raises(Undecodable):
        assignment_of(structs.replace(columns, **change))


def test_damaged_chunks_are_refused() -> None:
    world = world_of(a_world(1, seats_for(random.Random(1), 9)))
    chunks = to_chunks(world.document, 50)
    for damaged in (chunks[:-1], [b"x", *chunks[1:]], chunks[::-1], []):
        with pytest.raises(Undecodable):
            from_chunks(damaged, reference_to(world))
    with pytest.raises(Undecodable):
        from_chunks(chunks, structs.replace(reference_to(world), size=10))


def test_an_assignment_whose_members_are_in_no_order_is_kept_whole() -> None:
    ordered = a_world(1, seats_for(random.Random(1), 3, 1))
    strange = structs.replace(ordered, members=ordered.members[::-1])
    world = world_of(strange)
    assert assignment_of(compact_worlds.decode_document(world.document).columns) == as_received(strange)
    assert delta_of(world, world_of(ordered), reference_to(world)) is None


def test_an_assignment_that_cannot_be_read_back_has_no_document() -> None:
    broken = structs.replace(a_world(1, seats_for(random.Random(1), 3)), generation=Generation(2**60))
    with pytest.raises(NotStorable):
        world_of(broken)


def test_a_delta_cannot_add_members_behind_the_end() -> None:
    base = world_of(a_world(1, seats_for(random.Random(1), 3, 1)))
    delta = a_delta(base, base)
    added = world_deltas.Added(9, ("c", "r", "z"), 1, ("w",), ("10.0.0.1",))  # type: ignore[arg-type]
    with pytest.raises(WrongBase):
        apply(structs.replace(delta, added=(added,)), base)


def test_ranks_are_counted_by_runs() -> None:
    assert compact_worlds.counting_runs([0, 1, 2, -1, -1, 0, 5, 6, -1]) == ((0, 3), (-1, 2), (0, 1), (5, 2), (-1, 1))
    assert compact_worlds.merged([(0, 3), (3, 2), (-1, 1), (-1, 2), (0, 1)], counting=True) == ((0, 5), (-1, 3), (0, 1))
    assert [Rank(1)] == compact_worlds.unpack_ranks("1", 2)
