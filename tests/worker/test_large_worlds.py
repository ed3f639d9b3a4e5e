"""A worker-agent receives large worlds as deltas and references, over a real NATS server. It fetches what it missed."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from msgspec import structs

from agents.worker.events import AssignmentHeard, HaltHeard, InviteHeard, WorkerEvent
from agents.worker.incoming import Incoming
from agents.worker.state import WorkerIdentity
from controlplane.jobs.worlds import JobWorlds, WorldLimits
from messages import subjects
from messages.compact_worlds import StoredAssignment, StoredInvite
from messages.ids import ClusterName, Epoch, Generation, WorkerId
from messages.records import Phase, Record, encode_record
from messages.world_deltas import AssignmentDelta
from messages.worlds import Assignment, Halt, Invite
from runtime.bus import Bucket, Bus
from runtime.clock import SystemClock
from runtime.stored_worlds import write_chunks
from tests.conftest import Connect, eventually
from tests.messages.test_compact_worlds import as_received
from tests.messages.worlds import JOB, a_world, seats_for

OWN, CLUSTER = WorkerId("w1-0001"), ClusterName("local")
SEATS = seats_for(random.Random(1), 40, 1)
FIRST = as_received(a_world(1, SEATS))
SECOND = as_received(a_world(2, SEATS[1:]))


@dataclass
class Stage:
    master: Bus
    bucket: Bucket
    events: list[WorkerEvent] = field(default_factory=list)
    worlds: JobWorlds = field(default_factory=lambda: JobWorlds(JOB, Epoch(7), WorldLimits(record_bytes=2000)))

    async def store_as_master(self, assignment: Assignment) -> None:
        record = Record(Phase.FORMING, "", assignment.generation, 1, 0.0, Epoch(7), assignment)
        layout = self.worlds.layout(record)
        assert layout.chunks
        await write_chunks(self.bucket, layout.chunks)
        await self.bucket.put(subjects.record_key(JOB), layout.value)
        self.worlds.saved(record, layout.worlds)

    def send_as_master(self, message: Assignment | Invite) -> object:
        """Sends what a master sends to all workers, and returns it."""
        sent = self.worlds.message_to_all(message)
        subject = subjects.invite(JOB) if isinstance(message, Invite) else subjects.assignment(JOB)
        self.master.publish(subject, sent, epoch=Epoch(7))
        return sent

    def heard(self) -> list[Assignment]:
        return [event.assignment for event in self.events if isinstance(event, AssignmentHeard)]

    async def wait_until_worker_hears(self, assignment: Assignment) -> None:
        await eventually(lambda: assignment in self.heard(), what=f"generation {assignment.generation} to be heard")


@pytest.fixture
async def stage(connect: Connect) -> AsyncIterator[Stage]:
    """A worker-agent that has already read the record of its job, which had no world then."""
    master, worker = await connect("master/a"), await connect("worker/w1")
    made = Stage(master, await master.bucket(subjects.STATE_BUCKET))
    no_world = Record(Phase.FORMING, "", Generation(0), 1, 0.0, Epoch(7))
    await made.bucket.put(subjects.record_key(JOB), encode_record(no_world))
    bucket = await worker.bucket(subjects.STATE_BUCKET)
    incoming = Incoming(WorkerIdentity(OWN, CLUSTER, JOB), worker, bucket, made.events.append, SystemClock())
    await incoming.subscribe()
    async with asyncio.TaskGroup() as tasks:
        own = [tasks.create_task(incoming.keep_reading()), tasks.create_task(incoming.fetcher.run())]
        await eventually(lambda: any(isinstance(event, HaltHeard) for event in made.events), what="the first read")
        yield made
        for task in own:
            task.cancel()


async def test_a_reference_is_fetched_and_a_delta_applied(stage: Stage) -> None:
    await stage.store_as_master(FIRST)
    assert isinstance(stage.send_as_master(FIRST), StoredAssignment)
    await stage.wait_until_worker_hears(FIRST)
    assert isinstance(stage.send_as_master(SECOND), AssignmentDelta)
    await stage.wait_until_worker_hears(SECOND)


async def test_a_worker_that_missed_the_base_of_a_delta_fetches_the_world(stage: Stage) -> None:
    stage.worlds.message_to_all(FIRST)
    await stage.store_as_master(SECOND)
    assert isinstance(stage.send_as_master(SECOND), AssignmentDelta)
    await stage.wait_until_worker_hears(SECOND)


async def test_a_delta_with_another_result_is_ignored_and_the_world_is_fetched(stage: Stage) -> None:
    stage.master.publish(subjects.assignment(JOB), FIRST)
    stage.worlds.message_to_all(FIRST)
    await stage.store_as_master(SECOND)
    delta = stage.worlds.message_to_all(SECOND)
    assert isinstance(delta, AssignmentDelta)
    wrong = structs.replace(delta, removed="1")
    stage.master.publish(subjects.assignment(JOB), wrong, epoch=Epoch(7))
    await stage.wait_until_worker_hears(SECOND)
    assert stage.heard() == [FIRST, SECOND]


async def test_a_reference_to_a_world_that_was_replaced_leads_to_the_stored_one(stage: Stage) -> None:
    replaced = StoredAssignment(JOB, Generation(1), structs.replace(stage.worlds.reference(FIRST), chunks=3))
    await stage.store_as_master(SECOND)
    stage.master.publish(subjects.assignment(JOB), replaced, epoch=Epoch(7))
    await stage.wait_until_worker_hears(SECOND)


async def test_what_one_worker_missed_comes_on_its_own_subject(stage: Stage) -> None:
    await stage.store_as_master(FIRST)
    assignment, halt = stage.worlds.message_to_one(FIRST), Halt(JOB, Generation(2), "a test", 1.0)
    assert isinstance(assignment, StoredAssignment)
    for message in (assignment, halt):
        stage.master.publish(subjects.worker_order(CLUSTER, OWN), message, epoch=Epoch(7))
    await stage.wait_until_worker_hears(FIRST)
    await eventually(lambda: halt in [event.halt for event in stage.events if isinstance(event, HaltHeard)])


async def test_an_invitation_to_a_large_world_brings_that_world(stage: Stage) -> None:
    await stage.store_as_master(FIRST)
    assert isinstance(stage.send_as_master(Invite(JOB, (OWN,), FIRST, "a test", "terms")), StoredInvite)
    await eventually(lambda: any(isinstance(event, InviteHeard) for event in stage.events))
    [invite] = [event.invite for event in stage.events if isinstance(event, InviteHeard)]
    assert invite == Invite(JOB, (OWN,), FIRST, "a test", "terms")
