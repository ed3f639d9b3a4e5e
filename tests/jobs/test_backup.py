"""Jobs that a master writes again to a bus that lost its data, over a real NATS server."""

import shutil

import pytest

from controlplane.jobs import records
from controlplane.jobs.backup import JobBackup, Jobs
from controlplane.jobs.records import RememberedJob
from controlplane.ledger.records import decode_ledger
from controlplane.ledger.state import new_ledger
from messages import subjects
from messages.ids import Epoch, Generation, JobName
from messages.records import Phase, Record
from runtime.bus import Bucket, Bus
from runtime.nats_server import NatsServer
from tests.master.process import a_spec

JOB = JobName("job")


def held(generation: int = 3) -> Jobs:
    record = Record(Phase.RUNNING, "", Generation(generation), 1, 0.0, Epoch(9))
    return (RememberedJob(a_spec(JOB), record, new_ledger(JOB, since_ms=5)),)


@pytest.fixture
async def bucket(bus: Bus) -> Bucket:
    return await bus.bucket(subjects.STATE_BUCKET)


async def lose_data(nats_server: NatsServer) -> None:
    await nats_server.kill()
    shutil.rmtree(nats_server.folder)
    await nats_server.start()


async def purge(bus: Bus) -> None:
    """Purges like `nats stream purge`: the stream stays, and a watch reports nothing."""
    await bus._link.jetstream.purge_stream(f"KV_{subjects.STATE_BUCKET}")


async def generation(backup: JobBackup, bucket: Bucket) -> int | None:
    """The stored generation, after the backup has written."""
    await backup.settle(bucket)
    stored = await records.read_whole_record(bucket, JOB)
    return stored.record.generation if stored is not None else None


async def test_a_bus_that_kept_its_data_is_written_nothing(bucket: Bucket) -> None:
    backup = JobBackup()
    await backup.begin_term(bucket)
    backup.end_term(held())
    assert await generation(backup, bucket) is None


@pytest.mark.parametrize("other_leads", [False, True])
async def test_what_the_last_term_held_is_written_again_after_a_purge(
    bus: Bus, bucket: Bucket, other_leads: bool
) -> None:
    backup = JobBackup()
    await backup.begin_term(bucket)
    await purge(bus)
    backup.see_leader(other=other_leads)
    backup.end_term(held())
    assert await generation(backup, bucket) == 3
    await purge(bus)
    assert await generation(backup, bucket) == 3, "as often as it is purged"
    backup.see_leader(other=True)
    await backup.settle(bucket)
    await purge(bus)
    assert await generation(backup, bucket) is None, "the other one has read it and led on it"


async def test_a_job_that_was_removed_is_not_written_again(bus: Bus, bucket: Bucket) -> None:
    backup = JobBackup()
    await backup.begin_term(bucket)
    await records.write_again(bucket, held()[0])
    await bucket.delete(subjects.spec_key(JOB))
    await records.remove_rest(bucket, JOB)
    backup.end_term(held())
    assert await generation(backup, bucket) is None, "its data is still that of the term"


@pytest.mark.parametrize("reported", ["while it led", "afterwards", "never"])
async def test_what_the_last_term_held_is_written_for_a_bus_that_lost_it(
    nats_server: NatsServer, bucket: Bucket, reported: str
) -> None:
    backup = JobBackup()
    await backup.begin_term(bucket)
    await lose_data(nats_server)
    if reported == "while it led":
        backup.bus_forgot()
    backup.end_term(held())
    if reported == "afterwards":
        backup.bus_forgot()
    if reported != "never":
        backup.see_leader(other=True)
    assert await generation(backup, bucket) == 3
    stored = await records.read_whole_record(bucket, JOB)
    assert stored is not None
    assert stored.record.epoch == 0
    ledger = await bucket.get(subjects.ledger_key(JOB))
    assert ledger is not None
    assert decode_ledger(JOB, ledger.value)[0] == new_ledger(JOB, since_ms=5), "nor is it forgotten what was spent"


async def test_a_term_begins_when_the_jobs_of_the_last_one_are_there(nats_server: NatsServer, bucket: Bucket) -> None:
    backup = JobBackup()
    await backup.begin_term(bucket)
    backup.end_term(held())
    await lose_data(nats_server)
    await backup.begin_term(bucket)
    assert await records.read_whole_record(bucket, JOB) is not None
    backup.bus_forgot()
    backup.see_leader(other=True)
    backup.end_term(held(4))
    assert await generation(backup, bucket) == 3, "the loss was before the term, and is told late: the other one leads"


async def test_what_is_there_already_stays(nats_server: NatsServer, bucket: Bucket) -> None:
    backup = JobBackup()
    await backup.begin_term(bucket)
    await lose_data(nats_server)
    await records.write_again(bucket, held(7)[0])
    backup.end_term(held())
    assert await generation(backup, bucket) == 7


@pytest.mark.parametrize("seen_late", [True, False])
async def test_once_another_master_led_what_was_held_before_is_worth_nothing(
    nats_server: NatsServer, bucket: Bucket, seen_late: bool
) -> None:
    backup = JobBackup()
    await backup.begin_term(bucket)
    if not seen_late:
        backup.see_leader(other=True)
    backup.end_term(held())
    if seen_late:
        backup.see_leader(other=True)
    assert await generation(backup, bucket) is None
    await lose_data(nats_server)
    backup.bus_forgot()
    assert await generation(backup, bucket) is None


@pytest.mark.parametrize("lost_before", [True, False])
async def test_a_term_that_ended_too_early_to_know_its_jobs_forgets_none(
    nats_server: NatsServer, bucket: Bucket, lost_before: bool
) -> None:
    backup = JobBackup()
    await backup.begin_term(bucket)
    backup.end_term(held())
    if lost_before:
        await lose_data(nats_server)
    await backup.begin_term(bucket)
    await lose_data(nats_server)
    backup.bus_forgot()
    backup.end_term(None)
    assert await generation(backup, bucket) == 3


@pytest.mark.parametrize("reported_late", [True, False])
async def test_what_was_written_again_is_kept_until_another_master_leads_there(
    nats_server: NatsServer, bucket: Bucket, reported_late: bool
) -> None:
    backup = JobBackup()
    await backup.begin_term(bucket)
    backup.end_term(held())
    for _ in range(2):
        await lose_data(nats_server)
        assert await generation(backup, bucket) == 3
    if reported_late:
        backup.bus_forgot()
    backup.see_leader(other=True)
    await backup.settle(bucket)
    await lose_data(nats_server)
    assert await generation(backup, bucket) is None
