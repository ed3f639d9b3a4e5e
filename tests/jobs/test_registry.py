"""Start of a term's jobs and their allocators, and the end of a job whose records are gone."""

from collections.abc import Awaitable, Callable

import pytest

from controlplane.job.events import ScaleAsked, StopAsked
from controlplane.jobs.errors import JobUnknown, JobUnreadable
from controlplane.jobs.records import OnConflict, encode_spec, on_conflict
from messages import subjects
from messages.ids import Epoch, Generation, JobName
from messages.records import Phase, Record, encode_record
from runtime.bus import Bucket
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import Connect, eventually
from tests.jobs.test_forgetting import US, a_master
from tests.master.process import a_spec

JOB = JobName("job")
BEFORE, OURS, AFTER = Epoch(8), Epoch(9), Epoch(10)


def a_record(phase: Phase = Phase.WAITING, *, epoch: Epoch = BEFORE) -> Record:
    return Record(phase, "", Generation(1), 2, 0.0, epoch)


async def store(bucket: Bucket, record: Record) -> None:
    await bucket.put(subjects.record_key(JOB), encode_record(record))
    await bucket.put(subjects.spec_key(JOB), encode_spec(a_spec(JOB, 3)))


@pytest.mark.usefixtures("without_torch")
async def test_the_allocator_hears_a_stop_that_comes_before_the_jobs_first_decision(connect: Connect) -> None:
    cloud = FakeCloud(US)
    async with a_master(await connect("master"), cloud, keep_jobs=1) as master:
        await master.registry.make(a_spec(JOB))
        master.registry.post_to(JOB, StopAsked(master.context.now_s(), "stopped by a person"))
        await eventually(lambda: master.registry.job(JOB).ended, what="the job to end")
        await eventually(lambda: master.capacity.is_settled(JOB), what="the allocator to end")
        assert cloud.pools() == []


@pytest.mark.usefixtures("without_torch")
async def test_a_placement_for_a_job_that_had_ended_before_begins_no_loop(connect: Connect) -> None:
    bus = await connect("master")
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    await store(bucket, a_record(Phase.SUCCEEDED))
    async with a_master(bus, FakeCloud(US), keep_jobs=1, epoch=OURS) as master:
        await eventually(lambda: master.capacity.is_settled(JOB), what="the allocator to end")
        assert not master.registry.job(JOB).has_loop


async def _remove_spec(bucket: Bucket) -> None:
    await bucket.delete(subjects.spec_key(JOB))


async def _garble_spec(bucket: Bucket) -> None:
    await bucket.put(subjects.spec_key(JOB), b"{")


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize(("lose", "error"), [(_remove_spec, JobUnknown), (_garble_spec, JobUnreadable)])
async def test_a_job_whose_records_are_lost_before_it_is_adopted_again_is_let_go(
    lose: Callable[[Bucket], Awaitable[None]], error: type[Exception], connect: Connect
) -> None:
    bus = await connect("master")
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    await store(bucket, a_record())
    async with a_master(bus, FakeCloud(US), keep_jobs=1, epoch=OURS) as master:
        registry, runner = master.registry, master.registry.job(JOB)
        await eventually(lambda: runner.state.storage.saved is not None, what="the first record to be saved")
        await lose(bucket)
        await bucket.put(subjects.record_key(JOB), encode_record(a_record()))
        registry.post(runner, ScaleAsked(master.context.now_s(), 3))
        await eventually(lambda: JOB not in registry.jobs, what="the job to be let go")
        with pytest.raises(error):
            registry.job(JOB)
        assert master.capacity.is_settled(JOB)


@pytest.mark.parametrize(
    ("stored", "answer"),
    [
        (None, OnConflict.WRITE_OVER),
        (a_record(epoch=OURS), OnConflict.WRITE_OVER),
        (a_record(epoch=BEFORE), OnConflict.READ_AGAIN),
        (a_record(epoch=AFTER), OnConflict.YIELD),
    ],
)
def test_the_epochs_decide_which_record_stays(stored: Record | None, answer: OnConflict) -> None:
    assert on_conflict(stored, OURS) is answer
