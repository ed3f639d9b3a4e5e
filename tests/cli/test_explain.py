"""`tradewind explain`: the last decisions about a job, with their reasons and the rejected placements."""

import json

import msgspec

from messages.api import EventLine
from messages.jobs import Scalar
from tests.cli.command import tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tradewind.cli.explain import ABOUT, About, Explained, Loser, decisions, lines
from tradewind.client.errors import JobUnknown

DEARER = "12.0% dearer, as fast"
FEWEST = "the fewest dollars for a step"
LOST = "its node was lost"
NOTICE = "its node has a notice"
SPENT = "9.98 of 10 USD are spent"
PLANNED: dict[str, Scalar | None] = {
    "change": "begin",
    "workers": 4,
    "steps_per_s": 2.5,
    "usd_per_hour": "1.20",
    "usd_per_1000_steps": "0.13",
    "lost_1": f"4 × L4 in europe-west4-a: {DEARER}",
    "lost_2": "2 × A100-40 in us-central1-a: 40.1% dearer, 20.0% faster",
}


class Story:
    """Events of one job, a second apart."""

    def __init__(self) -> None:
        self.events: list[EventLine] = []

    def tell(self, kind: str, text: str = "", why: str = "", **fields: Scalar | None) -> "Story":
        at = 1_700_000_000.0 + len(self.events)
        self.events.append(EventLine(at, "mnist", kind, text or kind, why, fields))
        return self

    @property
    def decided(self) -> list[Explained]:
        return list(decisions(self.events))


def a_run() -> Story:
    story = Story().tell("job_submitted", "the job was submitted for 4 workers")
    story.tell("planned", "4 × L4 in us-central1-a", FEWEST, **PLANNED)
    story.tell("pool_created", "asking for a pool of 4 nodes", "the plan wants 4 here", size=4)
    for worker in ("w1", "w2"):
        story.tell("worker_joined", worker=worker)
    story.tell("world_decided", "generation 1: a world of 2 ranks", "2 are ready", generation=1)
    story.tell("zone_stocked_out", "g2-standard-8 in us-central1-a cannot be had", "no machines just now")
    story.tell("worker_gone", why=LOST, worker="w2").tell("worker_joined", worker="w3")
    story.tell("world_decided", "generation 2: a world of 2 ranks", "w2 was lost", generation=2)
    return story.tell("job_paused", "the job is paused", SPENT)


def test_only_decisions_are_told_in_their_order_and_by_what_they_are_about() -> None:
    assert [decision.about for decision in a_run().decided] == [
        About.JOB,
        About.PLACEMENT,
        About.POOLS,
        About.WORLD,
        About.SHORTAGE,
        About.WORLD,
        About.BUDGET,
    ]


def test_a_world_is_told_with_who_came_and_who_left_since_the_one_before() -> None:
    first, second = (each for each in a_run().decided if each.kind == "world_decided")
    assert (first.came, first.left) == (("w1", "w2"), ())
    assert (second.came, second.left) == (("w3",), (("w2", LOST),))


def test_who_came_and_went_between_two_worlds_is_no_news() -> None:
    story = Story().tell("worker_joined", worker="w1").tell("worker_gone", worker="w1").tell("world_decided")
    assert (story.decided[0].came, story.decided[0].left) == ((), ())


def test_who_leaves_with_a_prepared_world_is_told_with_it_and_not_again_with_the_next() -> None:
    story = Story().tell("worker_joined", worker="w1").tell("worker_joined", worker="w2").tell("world_decided")
    story.tell("worker_noticed", why=NOTICE, worker="w2")
    story.tell("world_decided", entry="planned", leaving="w2, w3").tell("worker_gone", worker="w2")
    story.tell("worker_joined", worker="w4").tell("world_decided")
    _, prepared, after = story.decided
    assert prepared.left == (("w2", NOTICE), ("w3", ""))
    assert "leaving" not in prepared.fields
    assert (after.came, after.left) == (("w4",), ())


def test_losers_are_in_their_order_also_beyond_nine_and_apart_from_the_other_fields() -> None:
    fields: dict[str, Scalar | None] = {f"lost_{number}": f"p{number}: w{number}" for number in (10, 2, 1)}
    (decision,) = Story().tell("planned", "", "", **fields, lost_track="no", workers=2).decided
    assert decision.lost == (Loser("p1", "w1"), Loser("p2", "w2"), Loser("p10", "w10"))
    assert decision.fields == {"lost_track": "no", "workers": 2}


def test_an_earlier_job_of_the_same_name_is_another_job() -> None:
    story = a_run().tell("job_stopped").tell("worker_gone", worker="w3")
    story.tell("job_submitted").tell("world_decided")
    assert [decision.kind for decision in story.decided] == ["job_submitted", "world_decided"]
    assert story.decided[1].left == ()


def test_what_comes_after_a_job_s_end_is_told_too() -> None:
    story = a_run().tell("job_stopped").tell("pool_deleted", why="the job has ended").tell("capacity_gone")
    assert [decision.kind for decision in story.decided][-3:] == ["job_stopped", "pool_deleted", "capacity_gone"]


def test_a_why_of_several_lines_stays_readable_and_a_missing_figure_is_left_out() -> None:
    (decision,) = Story().tell("planned", why="one\ntwo", usd_per_hour=1.5, steps_per_s=None).decided
    first, second, expected = lines(decision)
    assert (first, second) == ("why: one", "     two")
    assert "1.5 USD" in expected and "None" not in expected


def test_nodes_of_little_use_and_prices_that_are_missing_are_decided_upon() -> None:
    story = Story().tell("node_underused").tell("list_prices_used").tell("market_prices_used")
    assert [decision.about for decision in story.decided] == [About.POOLS, About.PLACEMENT, About.PLACEMENT]


def test_every_kind_is_about_something() -> None:
    assert set(ABOUT.values()) == set(About)


# The command


async def test_the_last_decisions_are_shown_with_what_lost(master: FakeMaster) -> None:
    master.views["mnist"] = a_view("mnist")
    master.events = a_run().events
    done = await tradewind("explain", "mnist", environ=master.environ)
    assert done.code == 0, done.err
    shown = [line.strip() for line in done.out.splitlines()]
    planned = next(number for number, line in enumerate(shown) if line.endswith("4 × L4 in us-central1-a"))
    assert shown[planned + 1] == f"why: {FEWEST}"
    assert all(part in shown[planned + 2] for part in ("4 workers", "2.5 steps/s", "1.20 USD", "0.13 USD"))
    assert any(line.split("  ")[0] == "4 × L4 in europe-west4-a" and "12.0% dearer" in line for line in shown)
    assert f"left: w2 ({LOST})" in shown
    assert done.hint == ["tradewind", "events", "mnist"]
    assert all(line == line.rstrip() for line in done.out.splitlines() if "why:" in line)
    assert shown[-1] == f"why: {SPENT}"


async def test_fewer_are_shown_if_asked_for_and_it_says_how_many_there_are(master: FakeMaster) -> None:
    master.views["mnist"] = a_view("mnist")
    master.events = a_run().events
    done = await tradewind("explain", "mnist", "--last", "1", environ=master.environ)
    assert "4 × L4" not in done.out
    assert done.says("6 ", "--last 7")


async def test_json_is_a_line_for_each(master: FakeMaster) -> None:
    master.views["mnist"] = a_view("mnist")
    master.events = a_run().events
    done = await tradewind("explain", "mnist", "--last", "6", "--json", environ=master.environ)
    reported = [msgspec.json.decode(line, type=Explained) for line in done.out.splitlines()]
    assert reported == a_run().decided[-6:]
    assert json.loads(done.out.splitlines()[0])["lost"][0] == {
        "placement": "4 × L4 in europe-west4-a",
        "why_not": DEARER,
    }


async def test_a_job_about_which_nothing_was_decided_yet_says_so(master: FakeMaster) -> None:
    master.views["mnist"] = a_view("mnist", "waiting")
    done = await tradewind("explain", "mnist", environ=master.environ)
    assert done.code == 0, done.err
    assert done.says("mnist", "waiting") and done.hint == ["tradewind", "status", "mnist"]


async def test_an_unknown_job_is_answered_with_the_one_that_was_meant(master: FakeMaster) -> None:
    master.views["mnist"] = a_view("mnist")
    done = await tradewind("explain", "mnits", environ=master.environ)
    assert done.code == 2
    assert done.error == JobUnknown("mnits", ["mnist"]).message
