"""A leader and a standby: the command finds the one that leads, and says so in one sentence if there is none."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from messages.api import EventLine
from messages.jobs import JobSpec, Launch, Workers
from runtime.children import free_port
from tests.cli.command import tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway
from tradewind.client.following import Seen, follow, source_of_event

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
async def standby(master: FakeMaster) -> AsyncIterator[FakeMaster]:
    fake = FakeMaster(leader=master.url)
    await fake.start()
    yield fake
    await fake.stop()


@contextlib.asynccontextmanager
async def deaf_master() -> AsyncIterator[str]:
    """Takes requests and ends without an answer."""
    port = free_port()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", port):
        yield f"http://127.0.0.1:{port}"


def a_job() -> JobSpec:
    return JobSpec("mnist", Launch(script="train.py"), Workers(max=2))


async def test_the_one_that_leads_is_asked_whatever_its_place(master: FakeMaster, standby: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    for urls in (f"{standby.url},{master.url}", f"{NOBODY}, {standby.url}, {master.url}/", f"{master.url},{NOBODY}"):
        done = await tradewind("status", "mnist", environ={"TRADEWIND_API_URL": urls})
        assert (done.code, done.err) == (0, "")
        assert "mnist" in done.out


async def test_a_standby_is_one_sentence_with_the_address_of_the_leader(
    master: FakeMaster, standby: FakeMaster
) -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": standby.url})
    assert done.code == 2
    sentence, hint = done.err.splitlines()
    assert sentence == f"Error: The master at {standby.url} is a standby; the one at {master.url} leads."
    assert f"TRADEWIND_API_URL={master.url}" in hint


async def test_an_address_that_is_none_is_refused(master: FakeMaster) -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": f"{master.url},elsewhere"})
    assert done.code == 2
    assert "TRADEWIND_API_URL" in done.err


async def test_whoever_was_found_to_lead_is_asked_first_from_then_on(master: FakeMaster, standby: FakeMaster) -> None:
    async with session() as opened:
        api = Api(opened, f"{standby.url},{master.url}")
        await api.submit(a_job())
        assert api.url == master.url
        assert [spec.name for spec in master.submitted] == ["mnist"]


async def test_while_a_standby_takes_over_the_command_waits(master: FakeMaster, standby: FakeMaster) -> None:
    await master.stop()
    standby.leader = ""
    async with session() as opened, asyncio.TaskGroup() as tasks:
        api = Api(opened, f"{standby.url},{master.url}")
        asking = tasks.create_task(api.submit(a_job()), name="submit")
        await eventually(lambda: standby.refused)
        standby.leader = None
    assert asking.result().name == "mnist"


async def test_what_may_have_been_done_is_not_asked_of_another(master: FakeMaster) -> None:
    async with session() as opened, deaf_master() as deaf:
        api = Api(opened, f"{deaf},{master.url}")
        with pytest.raises(MasterAway):
            await api.submit(a_job())
        assert master.submitted == []
        assert await api.jobs() == ()


async def test_a_stream_goes_on_at_the_next_leader(master: FakeMaster, standby: FakeMaster) -> None:
    for fake in (master, standby):
        fake.views["mnist"] = a_view()
        fake.events.append(EventLine(at=1.0, scope="mnist", kind="job_submitted", text="submitted"))
    found: list[str] = []
    async with session() as opened, asyncio.timeout(30.0), asyncio.TaskGroup() as tasks:
        api = Api(opened, f"{master.url},{standby.url}")

        async def never() -> bool:
            return False

        async def read() -> None:
            seen: Seen[EventLine] = Seen(source_of_event)
            async for event in follow(lambda: api.events("mnist", follow=True), seen, never):
                found.append(event.kind)
                if event.ends_job:
                    return

        tasks.create_task(read(), name="read")
        await eventually(lambda: found)
        standby.leader = None
        await master.stop()
        standby.end("mnist", "succeeded")
    assert found == ["job_submitted", "job_succeeded"]
    assert api.url == standby.url
