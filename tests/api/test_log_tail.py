"""The last lines of a job with many lines, over the API of a real master."""

from pathlib import Path

import nats
import pytest

from messages import codec, subjects
from messages.ids import Generation, JobName, Rank, WorkerId
from messages.worlds import LogLines
from runtime.nats_server import NatsServer
from tests.conftest import eventual_answer
from tests.master.fleet import fake_fleet
from tests.master.process import a_spec, running_master

LINES = 150_000


@pytest.mark.slow
async def test_the_last_lines_of_an_ended_job_come_however_many_it_and_others_have_printed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with running_master(nats_server.url, tmp_path) as (_, api), fake_fleet(nats_server.url) as fleet:
        job = JobName("verbose")
        await api.submit(a_spec(job, 1))
        await api.until_phase(job, "running")
        await store(nats_server, job, LINES)
        fleet.exit(job)
        await api.until_phase(job, "succeeded")
        last = [f"line {number}" for number in range(LINES - 3, LINES)]
        assert [line["line"] for line in await api.lines(f"/v1/jobs/{job}/logs?tail=3")] == last
        await store(nats_server, JobName("another"), LINES)
        for query in ("tail=3", "tail=3&rank=0", "tail=3&follow=1"):
            assert [line["line"] for line in await api.lines(f"/v1/jobs/{job}/logs?{query}")] == last
        assert len(await api.lines(f"/v1/jobs/{job}/logs?tail=50000")) == 50_000


async def store(server: NatsServer, job: JobName, lines: int) -> None:
    """Stores one message per line without waiting for each."""
    client = await nats.connect(server.url)
    stream = client.jetstream()
    last = (await stream.stream_info(subjects.LOGS_STREAM)).state.last_seq + lines
    for number in range(lines):
        message = LogLines(job, Rank(0), Generation(1), WorkerId("w"), (f"line {number}",))
        await client.publish(subjects.log(job, Rank(0)), codec.encode(codec.wrap(message, sender="test")))
    await eventual_answer(
        lambda: stream.stream_info(subjects.LOGS_STREAM), lambda info: info.state.last_seq >= last, "it to be stored"
    )
    await client.close()
