"""Worlds that are stored apart from their record: written before it, read with it, removed after it.

The tests use a real NATS server, and limits that three members exceed.
"""

import random

import pytest
from msgspec import structs

from agents.worker.events import AssignmentHeard
from agents.worker.stored import read_stored
from agents.worker.stored import read_world as read_as_worker
from agents.worker.worlds import WorldCache
from controlplane.job import events
from controlplane.jobs import records
from controlplane.jobs.records import RecordUnreadable, read_record, read_whole_record
from controlplane.jobs.worlds import WorldLimits, chunk_keys
from controlplane.reaper.claims import claim_of
from controlplane.reaper.state import Claim
from messages import subjects
from messages.ids import Epoch, Generation
from messages.records import Phase, Record
from messages.worlds import Assignment
from runtime.clock import SystemClock
from tests.jobs.conftest import EPOCH, JOB, Bench
from tests.messages.test_compact_worlds import as_received
from tests.messages.worlds import a_world, planned, seats_for

TINY = WorldLimits(message_bytes=700, record_bytes=1000, chunk_bytes=200)
"""Limits with which the worlds of these tests are stored in chunks."""
IN_RECORD = WorldLimits(message_bytes=700)
"""Limits with which they are stored in their record, but are too large for a message."""
SEATS = seats_for(random.Random(1), 12, 1)


def world(generation: int) -> Assignment:
    return as_received(a_world(generation, SEATS[generation:]))


def a_record(assignment: Assignment | None, *, epoch: int = EPOCH, why: str = "", **more: object) -> Record:
    generation = assignment.generation if assignment is not None else Generation(1)
    record = Record(Phase.RUNNING, why, generation, 1, 0.0, Epoch(epoch), assignment)
    return structs.replace(record, **more)


async def stored_chunks(bench: Bench) -> set[str]:
    return set(await bench.context.bucket.revisions(subjects.world_chunks(JOB)))


async def named_chunks(bench: Bench) -> set[str]:
    stored = await read_record(bench.context.bucket, JOB)
    assert stored is not None
    return chunk_keys(JOB, stored.worlds)


async def save_all(bench: Bench, *written: Record) -> None:
    shell = bench.shell(limits=TINY)
    for record in written:
        assert isinstance(await bench.save(shell, record), events.RecordSaved)


async def test_a_small_record_has_its_world_in_it(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record(world(1)))
    assert await bench.stored() == a_record(world(1))
    assert await stored_chunks(bench) == set()


async def test_large_worlds_are_read_back_with_their_record(bench: Bench) -> None:
    record = a_record(world(1), prepared=as_received(planned(world(1), 2, SEATS[2:])))
    await save_all(bench, record)
    assert await bench.stored() == record
    assert len(await stored_chunks(bench)) > 3
    assert await stored_chunks(bench) == await named_chunks(bench)
    entry = await bench.context.bucket.get(subjects.record_key(JOB))
    assert entry is not None
    assert len(entry.value) < TINY.record_bytes
    assert claim_of(entry.value) is Claim.LIVE


async def test_a_world_that_did_not_change_is_not_written_again(bench: Bench) -> None:
    shell, same = bench.shell(limits=TINY), world(1)
    await bench.save(shell, a_record(same, why="first"))
    before = await bench.context.bucket.revisions(subjects.world_chunks(JOB))
    await bench.save(shell, a_record(same, why="second"))
    assert await bench.context.bucket.revisions(subjects.world_chunks(JOB)) == before
    assert (await bench.stored()).why == "second"


async def test_a_replaced_world_is_removed_by_the_next_save(bench: Bench) -> None:
    second = world(2)
    last = a_record(second, why="all are ready")
    await save_all(bench, a_record(world(1)), a_record(second), last)
    assert await stored_chunks(bench) == await named_chunks(bench)
    assert await bench.stored() == last


async def test_chunks_of_a_master_that_died_before_it_stored_their_record_are_removed_by_the_next(bench: Bench) -> None:
    await save_all(bench, a_record(world(1), epoch=50))
    await bench.context.bucket.put(f"jobs.{JOB}.worlds.50.{'0' * 32}.0", b"of a master that died")
    adopted = await read_whole_record(bench.context.bucket, JOB)
    assert adopted is not None
    shell = bench.shell(adopted, TINY)
    await bench.save(shell, a_record(adopted.record.assignment, why="adopted"))
    assert await stored_chunks(bench) == await named_chunks(bench)
    assert (await bench.stored()).assignment == world(1)


async def test_chunks_of_a_newer_master_stay(bench: Bench) -> None:
    theirs = f"jobs.{JOB}.worlds.{EPOCH + 1}.{'0' * 32}.0"
    await bench.context.bucket.put(theirs, b"of the next master")
    second = world(2)
    await save_all(bench, a_record(world(1)), a_record(second), a_record(second, why="again"))
    assert await stored_chunks(bench) == await named_chunks(bench) | {theirs}


async def test_a_record_whose_chunks_are_gone_or_damaged_is_unreadable(bench: Bench) -> None:
    await save_all(bench, a_record(world(1)))
    key = min(await stored_chunks(bench))
    await bench.context.bucket.put(key, b"garbage")
    with pytest.raises(RecordUnreadable) as damaged:
        await read_whole_record(bench.context.bucket, JOB)
    await bench.context.bucket.delete(key)
    with pytest.raises(RecordUnreadable) as gone:
        await read_whole_record(bench.context.bucket, JOB)
    assert str(gone.value) != str(damaged.value)


async def test_saving_a_record_again_restores_its_lost_chunks(bench: Bench) -> None:
    shell, record = bench.shell(limits=TINY), a_record(world(1))
    await bench.save(shell, record)
    for key in await stored_chunks(bench):
        await bench.context.bucket.delete(key)
    await bench.save(shell, record)
    assert await bench.stored() == record


async def test_a_world_that_becomes_small_is_in_its_record_again(bench: Bench) -> None:
    small = as_received(a_world(3, SEATS[:1]))
    await save_all(bench, a_record(world(1)), a_record(small), a_record(small, why="again"))
    assert (await bench.stored()).assignment == small
    assert await stored_chunks(bench) == set()


async def test_nothing_is_left_of_a_removed_job(bench: Bench) -> None:
    await save_all(bench, a_record(world(1)))
    await records.remove_rest(bench.context.bucket, JOB)
    assert await bench.context.bucket.revisions(subjects.JOB_RECORDS) == {}


async def test_a_worker_that_starts_late_reads_a_large_world(bench: Bench) -> None:
    await save_all(bench, a_record(world(1)))
    heard = await read_as_worker(bench.context.bucket, JOB, SystemClock(), WorldCache())
    assert [each.assignment for each in heard if isinstance(each, AssignmentHeard)] == [world(1)]


@pytest.mark.parametrize("limits", [TINY, IN_RECORD], ids=["in chunks", "in the record"])
@pytest.mark.parametrize("which", ["assignment", "prepared"])
async def test_a_worker_fetches_the_world_that_a_reference_names(bench: Bench, limits: WorldLimits, which: str) -> None:
    record = a_record(world(1), prepared=as_received(planned(world(1), 2, SEATS[2:])))
    shell = bench.shell(limits=limits)
    await bench.save(shell, record)
    assert bool(await stored_chunks(bench)) == (limits is TINY)
    wanted = getattr(record, which)
    reference = shell.worlds.reference(wanted)
    assert await read_stored(bench.context.bucket, JOB, reference, WorldCache()) == wanted


@pytest.mark.parametrize("limits", [TINY, IN_RECORD], ids=["in chunks", "in the record"])
async def test_a_worker_fetches_nothing_for_the_digest_of_another_world(bench: Bench, limits: WorldLimits) -> None:
    shell = bench.shell(limits=limits)
    await bench.save(shell, a_record(world(1)))
    other = structs.replace(shell.worlds.reference(world(1)), digest="0" * 32)
    assert await read_stored(bench.context.bucket, JOB, other, WorldCache()) is None


async def test_a_fetch_that_meets_a_newer_world_finds_nothing(bench: Bench) -> None:
    shell, second = bench.shell(limits=TINY), world(2)
    await bench.save(shell, a_record(world(1)))
    reference = shell.worlds.reference(world(1))
    await bench.save(shell, a_record(second))
    await bench.save(shell, a_record(second, why="again"))
    cache = WorldCache()
    assert await read_stored(bench.context.bucket, JOB, reference, cache) is None
    [heard, _] = await read_as_worker(bench.context.bucket, JOB, SystemClock(), cache)
    assert isinstance(heard, AssignmentHeard)
    assert heard.assignment == second


async def test_a_change_of_phase_rewrites_a_small_record_and_no_chunk_of_ten_thousand_members(bench: Bench) -> None:
    many = a_world(1, seats_for(random.Random(3), 10_000, 1))
    shell = bench.shell()
    assert isinstance(await bench.save(shell, a_record(many)), events.RecordSaved)
    before = await bench.context.bucket.revisions(subjects.world_chunks(JOB))
    assert isinstance(
        await bench.save(shell, a_record(many, phase=Phase.WAITING, why="a worker left")), events.RecordSaved
    )
    assert before
    assert await bench.context.bucket.revisions(subjects.world_chunks(JOB)) == before
    entry = await bench.context.bucket.get(subjects.record_key(JOB))
    assert entry is not None
    assert len(entry.value) < 1000
    assert (await bench.stored()).assignment == as_received(many)
