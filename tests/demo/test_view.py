"""The live view and the report of the demonstration."""

import io
import re

from rich.console import Console, RenderableType

from messages.api import EventLine, ProgressLine, WorkerView
from messages.ids import Generation, Rank, WorkerId
from messages.worlds import RankProgress
from tests.cli.fake_master import FakeMaster, a_view
from tests.demo.facts import a_run
from tests.specs import a_spec
from tradewind.client.api import Api, session
from tradewind.demo.changes import lost_text
from tradewind.demo.checks import CLAIMS
from tradewind.demo.facts import Promise, formed_from
from tradewind.demo.report import report_on, report_text
from tradewind.demo.story import Story
from tradewind.demo.view import SUBMITTING, picture, summary

PROMISE = Promise(steps=60, workers=2, global_batch=16, checkpoint_every=10)


GONE = "worker w3 is gone"
HERE = "4 workers are here"
LOST = "worker w2 was lost"


def drawn(what: RenderableType) -> str:
    output = io.StringIO()
    Console(file=output, width=120).print(what)
    return output.getvalue()


async def a_story(master: FakeMaster) -> Story:
    async with session() as opened:
        return Story(Api(opened, master.url), a_spec("demo"), PROMISE, lambda event: None)


async def test_before_the_first_step_it_says_what_it_waits_for(master: FakeMaster) -> None:
    story = await a_story(master)
    assert summary(story) == SUBMITTING
    why = "1 worker is ready, 1 is starting; 2 are wanted"
    story.view = a_view("demo", "waiting", why=why)
    assert summary(story) == f"waiting: {why}"


async def test_the_picture_shows_workers_speed_and_what_happened(master: FakeMaster) -> None:
    story = await a_story(master)
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


async def test_a_step_of_an_older_world_does_not_count_as_progress(master: FakeMaster) -> None:
    story = await a_story(master)
    for generation, last_step in ((1, 29), (2, 22)):
        ranks = (RankProgress(Rank(0), 20, last_step),)
        story.progress.append(ProgressLine(1.0, WorkerId("w1"), Generation(generation), ranks))
    assert story.step == 22


def test_the_report_for_people_shows_each_check_and_each_failure() -> None:
    good, bad = drawn(report_text(report_on(a_run()))), drawn(report_text(report_on(a_run(kills=()))))
    assert all(f"✓ {claim}" in good for claim in CLAIMS)
    assert {"60", "2880", "12", "100"} <= set(re.findall(r"\d+", good))
    assert re.search(rf"23 +{lost_text('w2')} +4 → 3 +100 ms +0", good)
    assert f"certificate: {a_run().certificate}" in good
    [problem] = report_on(a_run(kills=())).failed_checks
    assert f"✗ {problem}" in bad and "✗" not in good


def test_a_world_is_explained_by_what_ended_the_one_before() -> None:
    events = [
        EventLine(1.0, "demo", "world_decided", "", HERE, {"generation": 1, "world_size": 4}),
        EventLine(2.0, "demo", "world_halted", "", LOST, {"generation": 2}),
        EventLine(3.0, "demo", "world_decided", "", "3 workers are here", {"generation": 2, "world_size": 3}),
        EventLine(
            4.0, "demo", "world_decided", "", "w4 joined", {"generation": 3, "world_size": 4, "entry": "planned"}
        ),
    ]
    assert [(world.generation, world.size, world.why, world.entry) for world in formed_from(events)] == [
        (1, 4, HERE, ""),
        (2, 3, LOST, ""),
        (3, 4, "w4 joined", "planned"),
    ]
