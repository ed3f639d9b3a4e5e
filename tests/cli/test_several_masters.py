"""A leader and a standby: commands find the leader, and report it if there is none."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from messages.api import EventLine
from runtime.children import free_port
from runtime.exit_codes import EXIT_UNREACHABLE
from tests.cli.command import tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually
from tests.specs import a_spec
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway, NotLeading
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
    """A server that closes the connection without an answer."""
    port = free_port()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", port):
        yield f"http://127.0.0.1:{port}"


async def test_the_one_that_leads_is_asked_whatever_its_place(master: FakeMaster, standby: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    for urls in (f"{standby.url},{master.url}", f"{NOBODY}, {standby.url}, {master.url}/", f"{master.url},{NOBODY}"):
        done = await tradewind("status", "mnist", environ={"TRADEWIND_API_URL": urls})
        assert (done.code, done.error) == (0, "")
        assert "mnist" in done.out


async def test_a_standby_is_one_sentence_with_the_address_of_the_leader(
    master: FakeMaster, standby: FakeMaster
) -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": standby.url})
    assert (done.code, done.error) == (EXIT_UNREACHABLE, str(NotLeading(standby.url, master.url)))
    assert master.url in done.error and f"TRADEWIND_API_URL={master.url}," in done.hint


async def test_an_address_that_is_none_is_refused(master: FakeMaster) -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": f"{master.url},elsewhere"})
    assert done.code == 2
    assert "TRADEWIND_API_URL" in done.err


async def test_the_one_that_was_found_to_lead_is_asked_first_from_then_on(
    master: FakeMaster, standby: FakeMaster
) -> None:
    async with session() as opened:
        api = Api(opened, f"{standby.url},{master.url}")
        await api.submit(a_spec("mnist", 2))
        assert api.url == master.url
        assert [spec.name for spec in master.submitted] == ["mnist"]


async def test_while_a_standby_takes_over_the_command_waits(master: FakeMaster, standby: FakeMaster) -> None:
    await master.stop()
    standby.leader = ""
    async with session() as opened, asyncio.TaskGroup() as tasks:
        api = Api(opened, f"{standby.url},{master.url}")
        asking = tasks.create_task(api.submit(a_spec("mnist", 2)), name="submit")
        await eventually(lambda: standby.refused)
        standby.leader = None
    assert asking.result().name == "mnist"


async def test_what_may_have_been_done_is_not_asked_of_another(master: FakeMaster) -> None:
    async with session() as opened, deaf_master() as deaf:
        api = Api(opened, f"{deaf},{master.url}")
        with pytest.raises(MasterAway):
            await api.submit(a_spec("mnist", 2))
        assert master.submitted == []
        assert await api.jobs() == ()


async def test_a_stream_continues_at_the_next_leader(master: FakeMaster, standby: FakeMaster) -> None:
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
