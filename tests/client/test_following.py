"""Followers continue when the master restarts, and show each line once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Never

import pytest

from messages.api import EventLine, LogLine
from messages.ids import Generation, Rank
from messages.jobs import Scalar
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway, unreachable
from tradewind.client.following import Seen, follow, source_of_event, source_of_line
from tradewind.client.watch import End, Watch

WAIT_S = 30.0
WHY = "all 2 ranks exited with 0"


def a_line(text: str, *, at: float, rank: int = 0, generation: int = 1, stderr: bool = False) -> LogLine:
    return LogLine(at=at, rank=Rank(rank), generation=Generation(generation), line=text, stderr=stderr)


def given(seen: Seen[LogLine], *lines: LogLine) -> list[str]:
    seen.replay()
    return [line.line for line in lines if seen.is_new(line)]


def test_a_replay_gives_only_what_is_new() -> None:
    seen: Seen[LogLine] = Seen(source_of_line)
    first = [a_line("a", at=1.0), a_line("b", at=1.0), a_line("c", at=2.0)]
    assert given(seen, *first) == ["a", "b", "c"]
    assert given(seen, *first, a_line("d", at=2.0), a_line("e", at=3.0)) == ["d", "e"]


def test_lines_of_the_same_moment_are_told_apart_by_their_number() -> None:
    seen: Seen[LogLine] = Seen(source_of_line)
    assert given(seen, a_line("same", at=1.0)) == ["same"]
    assert given(seen, a_line("same", at=1.0), a_line("same", at=1.0)) == ["same"]


def test_each_source_has_its_own_time() -> None:
    seen: Seen[LogLine] = Seen(source_of_line)
    late, early = a_line("rank 0", at=9.0), a_line("rank 1", at=1.0, rank=1)
    assert given(seen, late, early, a_line("its stderr", at=2.0, rank=1, stderr=True)) == [
        "rank 0",
        "rank 1",
        "its stderr",
    ]
    assert given(seen, late, early) == []


def test_a_replay_does_not_bring_back_what_the_tail_left_out() -> None:
    seen: Seen[LogLine] = Seen(source_of_line)
    assert given(seen, a_line("shown", at=5.0)) == ["shown"]
    assert given(seen, a_line("older", at=1.0, rank=3), a_line("shown", at=5.0), a_line("new", at=6.0, rank=3)) == [
        "new"
    ]


async def test_a_watch_survives_a_restart_of_the_master_and_gives_each_line_once(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.lines += [a_line("one", at=1.0), a_line("two", at=1.0)]
    shown: list[str] = []
    reported: list[str] = []
    async with session() as opened, asyncio.timeout(WAIT_S):
        watch = Watch(
            Api(opened, master.url),
            "mnist",
            on_line=lambda line: shown.append(line.line),
            on_event=lambda event: reported.append(event.kind),
            on_away=reported.append,
        )
        ending = asyncio.create_task(watch.until_end(), name="watch")
        await eventually(lambda: shown == ["one", "two"])
        await master.stop()
        master.lines += [a_line("three", at=2.0), a_line("four", at=2.0, rank=1)]
        await eventually(lambda: any(master.url in text for text in reported))
        await master.start()
        await eventually(lambda: len(shown) == 4)
        master.end("mnist", "succeeded", WHY)
        end = await ending
    assert shown == ["one", "two", "three", "four"]
    assert reported[-1] == "job_succeeded"
    assert end == End("succeeded", WHY, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"code": 7}, 7),
        ({"code": None, "signal": "SIGSEGV"}, 1),
        ({"code": 1, "peer_lost": True}, 1),
        ({}, 1),
    ],
)
async def test_a_failed_job_ends_with_the_code_of_its_script(
    master: FakeMaster, fields: dict[str, Scalar | None], code: int
) -> None:
    master.views["mnist"] = a_view()
    master.events.append(EventLine(at=0.5, scope="mnist", kind="trainer_failed", text="rank 0 failed", fields=fields))
    master.end("mnist", "failed", "rank 0 failed")
    async with session() as opened, asyncio.timeout(WAIT_S):
        watch = Watch(
            Api(opened, master.url),
            "mnist",
            on_line=lambda line: None,
            on_event=lambda event: None,
            on_away=lambda why: None,
        )
        assert (await watch.until_end()).code == code


async def test_a_follower_gives_up_on_a_master_that_stays_away() -> None:
    async def nobody() -> AsyncIterator[EventLine]:
        raise unreachable("http://127.0.0.1:1", "connection refused")
        yield

    async def never() -> bool:
        return False

    with pytest.raises(MasterAway) as refused:
        async for _ in follow(nobody, Seen(source_of_event), never, patience_s=0.3):
            pytest.fail("nobody is there to say anything")
    assert "http://127.0.0.1:1" in str(refused.value) and "0.3 s" in str(refused.value)
    assert "tradewind master" in refused.value.hint


async def test_an_interrupted_follower_ends_its_stream(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.lines.append(a_line("one", at=1.0))
    async with session() as opened:
        api = Api(opened, master.url)

        async def read() -> Never:
            async for _ in api.logs("mnist", follow=True):
                pass
            pytest.fail("the job has not ended")

        reading = asyncio.create_task(read(), name="read")
        await eventually(lambda: master.streams == 1)
        reading.cancel()
        await asyncio.wait({reading})
        assert reading.cancelled()
