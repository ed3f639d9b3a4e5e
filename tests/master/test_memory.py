"""What a master remembers for a bus that loses its data, over a real NATS server."""

import pytest

from controlplane.job.state import Phase, Record
from controlplane.master import records
from controlplane.master.memory import Jobs, Memory
from messages import subjects
from messages.ids import Epoch, Generation, JobName
from runtime.bus import Bucket, Bus
from tests.master.process import a_spec

JOB = JobName("job")


def held(generation: int = 3) -> Jobs:
    return ((a_spec(JOB), Record(Phase.RUNNING, "", Generation(generation), 1, 0.0, Epoch(9))),)


@pytest.fixture
async def bucket(bus: Bus) -> Bucket:
    return await bus.bucket(subjects.STATE_BUCKET)


async def generation(memory: Memory, bucket: Bucket) -> int | None:
    """As it is stored, once the memory has written what it had to."""
    await memory.write_again(bucket)
    stored = await records.read_world(bucket, JOB)
    return stored.record.generation if stored is not None else None


async def test_a_bus_that_kept_its_data_is_written_nothing(bucket: Bucket) -> None:
    memory = Memory()
    memory.begin_term()
    memory.end_term(held())
    assert await generation(memory, bucket) is None


@pytest.mark.parametrize("while_it_led", [True, False])
async def test_what_the_last_term_held_is_written_for_a_bus_that_lost_it(bucket: Bucket, while_it_led: bool) -> None:
    memory = Memory()
    memory.begin_term()
    if while_it_led:
        memory.bus_forgot()
    memory.end_term(held())
    if not while_it_led:
        memory.bus_forgot()
    memory.see_leader(other=True)
    assert await generation(memory, bucket) == 3
    stored = await records.read_world(bucket, JOB)
    assert stored is not None
    assert stored.record.epoch == 0


async def test_what_is_there_already_stays(bucket: Bucket) -> None:
    await records.write_again(bucket, *held(7)[0])
    memory = Memory()
    memory.begin_term()
    memory.bus_forgot()
    memory.end_term(held())
    assert await generation(memory, bucket) == 7


@pytest.mark.parametrize("seen_late", [True, False])
async def test_once_another_master_led_what_was_held_before_is_worth_nothing(bucket: Bucket, seen_late: bool) -> None:
    memory = Memory()
    memory.begin_term()
    if not seen_late:
        memory.see_leader(other=True)
    memory.end_term(held())
    if seen_late:
        memory.see_leader(other=True)
    memory.bus_forgot()
    assert await generation(memory, bucket) is None


async def test_a_term_that_ended_before_its_jobs_were_known_forgets_nothing(bucket: Bucket) -> None:
    memory = Memory()
    memory.begin_term()
    memory.end_term(held())
    memory.begin_term()
    memory.bus_forgot()
    memory.end_term(None)
    assert await generation(memory, bucket) == 3
