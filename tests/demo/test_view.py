"""The live view of the demonstration."""

import re
from collections.abc import AsyncIterator

import pytest

from messages.api import EventLine, ProgressLine, WorkerView
from messages.ids import Generation, Rank, WorkerId
from messages.worlds import RankProgress
from tests.cli.fake_master import FakeMaster, a_view
from tests.demo.drawing import drawn
from tests.specs import a_spec
from tradewind.client.api import Api, session
from tradewind.demo.facts import Promise
from tradewind.demo.story import Story
from tradewind.demo.view import SUBMITTING, picture, summary

PROMISE = Promise(steps=60, workers=2, global_batch=16, checkpoint_every=10)
GONE = "worker w3 is gone"


@pytest.fixture
async def story(master: FakeMaster) -> AsyncIterator[Story]:
    async with session() as opened:
        yield Story(Api(opened, master.url), a_spec("demo"), PROMISE, lambda event: None)


async def test_before_the_first_step_the_summary_says_what_the_job_waits_for(story: Story) -> None:
    assert summary(story) == SUBMITTING
    why = "1 worker is ready, 1 is starting; 2 are wanted"
    story.view = a_view("demo", "waiting", why=why)
    assert summary(story) == f"waiting: {why}"


async def test_the_picture_shows_workers_speed_and_events(story: Story) -> None:
    worker = WorkerView(
        worker=WorkerId("w7-aa"), cluster="local", phase="ready", presence="alive", ranks=(Rank(1),), step=29, loss=2.5
    )
    story.view = a_view("demo", loss=2.5, samples_per_s=32.0, workers=(worker,))
    story.progress.append(ProgressLine(1.0, WorkerId("w7-aa"), Generation(1), (RankProgress(Rank(1), 0, 29),)))
    story.events.append(EventLine(1.0, "demo", "worker_gone", GONE, "ended by SIGKILL"))
    text = drawn(picture(story))
    assert summary(story) in text
    assert {"30", "60", "2.5", "2", "1", "2.0", "32"} <= set(re.findall(r"[\d.]+", summary(story)))
    assert "w7-aa" in text
    assert GONE in text
