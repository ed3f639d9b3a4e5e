"""The demonstration records facts, gives one worker a notice and kills another."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from messages.api import EventLine, JobView, LogLine, ProgressLine, WorkerView
from messages.ids import Generation, Rank, WorkerId
from messages.worlds import RankProgress
from runtime.errors import UserError
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually
from tests.specs import a_spec
from tradewind.client.api import Api, session
from tradewind.demo.facts import Promise
from tradewind.demo.story import Story

WAIT_S = 30.0


@pytest.fixture
def worker_processes() -> Iterator[list["subprocess.Popen[bytes]"]]:
    processes = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(3)]
    yield processes
    for process in processes:
        process.kill()
        process.wait(WAIT_S)


def a_story(api: Api) -> Story:
    promise = Promise(steps=30, workers=2, global_batch=16, checkpoint_every=10)
    return Story(api, a_spec("demo"), promise, lambda event: None)


def running(pids: list[int], generation: int = 1) -> JobView:
    workers = tuple(
        WorkerView(
            worker=WorkerId(f"w{rank}-{generation}"),
            cluster="local",
            phase="ready",
            presence="alive",
            ranks=(Rank(rank),),
            pid=pid,
        )
        for rank, pid in enumerate(pids)
    )
    return a_view("demo", workers=workers, generation=Generation(generation))


def steps(rank: int, first: int, last: int, generation: int = 1) -> ProgressLine:
    worker = WorkerId(f"w{rank}-{generation}")
    return ProgressLine(time.time(), worker, Generation(generation), (RankProgress(Rank(rank), first, last),))


async def test_one_worker_is_told_to_go_then_one_is_killed_and_everything_is_recorded(
    master: FakeMaster, worker_processes: list["subprocess.Popen[bytes]"]
) -> None:
    first, second, third = worker_processes
    async with session() as opened, asyncio.timeout(WAIT_S):
        story = a_story(Api(opened, master.url))
        playing = asyncio.create_task(story.play(), name="play")
        await eventually(lambda: master.submitted)
        master.views["demo"] = running([first.pid, second.pid])
        master.progress += [steps(0, 0, 6), steps(1, 4, 6)]
        asked = len(master.asked)
        await eventually(lambda: len(master.asked) >= asked + 3)
        assert second.poll() is None
        master.progress += [steps(0, 7, 8), steps(1, 7, 8)]
        await eventually(lambda: second.poll() is not None)
        assert second.returncode == -signal.SIGTERM
        master.progress += [steps(0, 9, 12), steps(1, 9, 12)]
        asked = len(master.asked)
        await eventually(lambda: len(master.asked) >= asked + 3)
        assert first.poll() is None
        assert [event.kind for event in story.events] == ["demo_noticed"]
        master.views["demo"] = running([first.pid, third.pid], generation=3)
        master.progress += [steps(0, 13, 20, generation=3), steps(1, 14, 20, generation=3)]
        await eventually(lambda: third.poll() is not None)
        assert third.returncode == -signal.SIGKILL
        for line in ("certificate: 30 steps: 0 lost", "the end"):
            master.lines.append(LogLine(at=1.0, rank=Rank(0), generation=Generation(1), line=line))
        fields: dict[str, str | int | float | bool | None] = {"generation": 1, "world_size": 2}
        master.events.append(EventLine(0.5, "demo", "world_decided", "a world of 2", "2 workers are here", fields))
        master.events.append(EventLine(0.6, "demo", "worker_noticed", "", "", {"worker": "w1-1"}))
        master.end("demo", "succeeded", "all 2 ranks exited with 0")
        await playing
    facts = story.facts(left_behind=())
    assert facts.phase == "succeeded"
    assert [(kill.worker, kill.rank, kill.step, kill.survived) for kill in facts.kills] == [("w1-3", 1, 20, ())]
    assert [(world.generation, world.size) for world in facts.formed] == [(1, 2)]
    assert len(facts.progress) == 8
    assert facts.certificate == "30 steps: 0 lost"
    assert facts.noticed == {"w1-1"}
    assert story.last_lines[-1] == "[0] the end"
    kinds = [event.kind for event in story.events]
    assert kinds == ["demo_noticed", "demo_killed", "world_decided", "worker_noticed", "job_succeeded"]


async def test_a_worker_of_somebody_else_is_left_alone(master: FakeMaster) -> None:
    async with session() as opened, asyncio.timeout(WAIT_S):
        story = a_story(Api(opened, master.url))
        playing = asyncio.create_task(story.play(), name="play")
        await eventually(lambda: master.submitted)
        master.views["demo"] = running([1, 1])
        master.progress += [steps(0, 0, 20), steps(1, 0, 20)]
        with pytest.raises(ExceptionGroup) as refused:
            await playing
    [error] = refused.value.exceptions
    assert isinstance(error, UserError) and "w1-1" in error.message and "TRADEWIND_NATS_URL" in error.hint


async def test_the_step_of_an_older_world_does_not_count_as_progress(master: FakeMaster) -> None:
    async with session() as opened:
        story = a_story(Api(opened, master.url))
        story.progress += [steps(0, 20, 29, generation=1), steps(0, 20, 22, generation=2)]
        assert story.step == 22
