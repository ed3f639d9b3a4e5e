"""The demonstration records all that it sees, and kills a worker once, when the time has come."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from messages.api import EventLine, JobView, LogLine, ProgressLine, WorkerView
from messages.ids import Generation, Rank, WorkerId
from messages.jobs import JobSpec, Launch
from messages.worlds import RankProgress
from runtime.errors import UserError
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually
from tradewind.cli.api.client import Api, session
from tradewind.cli.demo.facts import Promise
from tradewind.cli.demo.story import Story

WAIT_S = 30.0


@pytest.fixture
def worker_process() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait(WAIT_S)


def a_story(api: Api) -> Story:
    promise = Promise(steps=30, workers=2, global_batch=16, checkpoint_every=10)
    return Story(api, JobSpec(name="demo", launch=Launch(script="train.py")), promise, lambda event: None)


def running(pid: int) -> JobView:
    workers = tuple(
        WorkerView(
            worker=WorkerId(f"w{rank}-aa"),
            cluster="local",
            phase="ready",
            presence="alive",
            ranks=(Rank(rank),),
            pid=pid if rank == 1 else 1,
        )
        for rank in range(2)
    )
    return a_view("demo", workers=workers)


def steps(first: int, last: int) -> ProgressLine:
    return ProgressLine(time.time(), WorkerId("w0-aa"), Generation(1), (RankProgress(Rank(0), first, last),))


async def test_a_worker_is_killed_after_a_third_of_the_steps_and_everything_is_recorded(
    master: FakeMaster, worker_process: "subprocess.Popen[bytes]"
) -> None:
    async with session() as opened, asyncio.timeout(WAIT_S):
        story = a_story(Api(opened, master.url))
        playing = asyncio.create_task(story.play(), name="play")
        await eventually(lambda: master.submitted)
        master.views["demo"] = running(worker_process.pid)
        master.progress.append(steps(0, 5))
        await eventually(lambda: story.step == 5)
        assert worker_process.poll() is None
        master.progress.append(steps(6, 12))
        await eventually(lambda: worker_process.poll() is not None)
        master.lines.append(LogLine(at=1.0, rank=Rank(0), generation=Generation(1), line="the end"))
        fields: dict[str, str | int | float | bool | None] = {"generation": 1, "world_size": 2}
        master.events.append(EventLine(0.5, "demo", "world_decided", "a world of 2", "2 workers are here", fields))
        master.end("demo", "succeeded", "all 2 ranks exited with 0")
        await playing
    facts = story.facts(left_behind=())
    assert facts.phase == "succeeded"
    assert [(kill.worker, kill.rank, kill.step, kill.survived) for kill in facts.kills] == [("w1-aa", 1, 12, ())]
    assert [(world.generation, world.size) for world in facts.formed] == [(1, 2)]
    assert len(facts.progress) == 2
    assert [*story.last_lines] == ["[0] the end"]
    assert [event.kind for event in story.events] == ["demo_killed", "world_decided", "job_succeeded"]


async def test_a_worker_of_somebody_else_is_never_killed(master: FakeMaster) -> None:
    async with session() as opened, asyncio.timeout(WAIT_S):
        story = a_story(Api(opened, master.url))
        playing = asyncio.create_task(story.play(), name="play")
        await eventually(lambda: master.submitted)
        master.views["demo"] = running(pid=1)
        master.progress.append(steps(0, 20))
        with pytest.raises(ExceptionGroup) as refused:
            await playing
    assert refused.group_contains(UserError, match="was not started by this command")
