"""A job whose record is unreadable does not run, but still exists."""

import pytest

from controlplane.jobs.errors import JobExists, JobUnreadable
from controlplane.jobs.records import encode_spec
from messages import subjects
from messages.ids import JobName
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import Connect, eventually
from tests.jobs.test_forgetting import US, a_master
from tests.master.process import a_spec
from tests.stored.hostile import DEEP_OBJECT

pytestmark = pytest.mark.usefixtures("without_torch")

BROKEN, DEEP, GARBLED, NEWER = (JobName(name) for name in ("broken", "deep", "garbled", "newer"))


async def test_jobs_whose_records_cannot_be_read_are_told_as_such_until_they_are_gone(connect: Connect) -> None:
    bus = await connect("master")
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    await bucket.put(subjects.spec_key(BROKEN), b"{")
    await bucket.put(subjects.spec_key(GARBLED), b'{"name": "\xff"}')
    await bucket.put(subjects.spec_key(DEEP), encode_spec(a_spec(DEEP)))
    await bucket.put(subjects.record_key(DEEP), DEEP_OBJECT)
    await bucket.put(subjects.spec_key(NEWER), encode_spec(a_spec(NEWER)))
    await bucket.put(subjects.record_key(NEWER), b'{"phase": "dreaming"}')
    async with a_master(bus, FakeCloud(US), keep_jobs=1) as master:
        service = master.service
        listed = service.job_list()
        assert (listed.jobs, listed.unread) == ((), (BROKEN, DEEP, GARBLED, NEWER))
        with pytest.raises(JobUnreadable, match=BROKEN):
            service.view(BROKEN)
        with pytest.raises(JobExists):
            await service.submit(a_spec(NEWER))
        assert (await service.submit(a_spec("fine"))).name == "fine", "other jobs are run as ever"
        await bucket.delete(subjects.spec_key(BROKEN))
        await eventually(lambda: service.job_list().unread == (DEEP, GARBLED, NEWER), what="the deletion to be heard")
