"""With a cloud, the demonstration preempts machines when the world is settled, and records what is left."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from messages.api import EventLine, JobView, ProgressLine, WorkerView
from messages.ids import Generation, Rank, WorkerId
from messages.worlds import RankProgress
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually
from tests.demo.fake_simulator import FakeSimulator
from tests.specs import a_spec
from tradewind.client.api import Api, session
from tradewind.demo import FLEET
from tradewind.demo.cloud.story import CloudStory
from tradewind.demo.facts import Promise
from tradewind.local.fleet import decode_fleet, fleet_at
from tradewind.local.simulator import Simulator

WAIT_S = 30.0


@pytest.fixture
async def cloud() -> AsyncIterator[FakeSimulator]:
    simulator = FakeSimulator(nodes=[a_node("n0"), a_node("n1")], pools=[{"name": "tw-demo", "cluster": "sim-us"}])
    await simulator.start()
    yield simulator
    await simulator.stop()


@pytest.fixture
async def story(master: FakeMaster, cloud: FakeSimulator) -> AsyncIterator[CloudStory]:
    promise = Promise(steps=40, workers=2, global_batch=16, checkpoint_every=4)
    spec = a_spec("demo")
    fleet = decode_fleet(fleet_at(FLEET.read_text(), 1, 2, workers=2))
    async with session() as opened:
        simulator = Simulator(opened, cloud.url)
        yield CloudStory(Api(opened, master.url), spec, promise, lambda event: None, simulator, fleet)


def a_node(name: str, zone: str = "us-central1-a", machine: str = "1") -> dict[str, str]:
    return {
        "name": name,
        "cluster": "sim-us",
        "zone": zone,
        "phase": "running",
        "pool": "tw-demo",
        "instance_id": machine,
    }


def a_world(generation: int, **clusters: str) -> JobView:
    workers = tuple(
        WorkerView(
            worker=WorkerId(name),
            cluster=cluster.replace("_", "-"),
            phase="ready",
            presence="alive",
            generation=Generation(generation),
            ranks=(Rank(rank),),
        )
        for rank, (name, cluster) in enumerate(clusters.items())
    )
    return a_view("demo", workers=workers, generation=Generation(generation), losses=generation - 1)


def steps(generation: int, first: int, last: int) -> ProgressLine:
    ranks = tuple(RankProgress(Rank(rank), first, last) for rank in range(2))
    return ProgressLine(time.time(), WorkerId("w1"), Generation(generation), ranks)


def heard(kind: str, worker: str, why: str = "", cluster: str = "") -> EventLine:
    return EventLine(time.time(), "demo", kind, kind, why, {"worker": worker, "cluster": cluster})


async def test_a_node_hangs_zones_run_dry_one_is_lost_a_pool_is_upgraded_and_a_node_is_noticed(
    master: FakeMaster, cloud: FakeSimulator, story: CloudStory
) -> None:
    async with asyncio.timeout(WAIT_S):
        playing = asyncio.create_task(story.play(), name="play")
        await eventually(lambda: master.submitted)
        master.views["demo"] = a_world(1, w0="sim_us", w1="sim_us")
        master.progress.append(steps(1, 0, 6))
        await eventually(lambda: cloud.orders_of("ready") == [{"node": "n0", "ready": False}])
        master.events.append(heard("worker_gone", "w0", "nothing is heard of it"))
        master.views["demo"] = a_world(2, w1="sim_us", w2="sim_us")
        master.progress.append(steps(2, 4, 12))
        cloud.nodes = [a_node("n0", machine="2"), a_node("n1"), a_node("n2")]
        await eventually(lambda: cloud.orders_of("preempt") == [{"node": "n1", "notice_s": 0.0}])
        assert [order["zone"] for order in cloud.orders_of("stockout")] == ["us-central1-a", "us-central1-b"]
        master.events.append(heard("worker_gone", "w1", "its pod has ended"))
        master.events.append(heard("worker_joined", "w3", cluster="sim-eu"))
        master.views["demo"] = a_world(3, w2="sim_us", w3="sim_eu")
        master.progress.append(steps(3, 13, 20))
        cloud.nodes = [a_node("n2"), a_node("n3", "europe-west4-a")]
        await eventually(lambda: cloud.orders_of("upgrade"))
        assert cloud.orders_of("upgrade") == [{"cluster": "sim-us", "pool": "tw-demo", "forced": True}]
        master.events += [heard("worker_noticed", "w3"), heard("worker_gone", "w3", "released: no longer needed")]
        master.views["demo"] = a_world(4, w2="sim_us", w4="sim_eu")
        master.progress.append(steps(4, 21, 28))
        cloud.nodes = [a_node("n2"), a_node("n3", "europe-west4-a", machine="2")]
        await eventually(lambda: len(cloud.orders_of("preempt")) == 2)
        master.events += [heard("worker_noticed", "w2"), heard("worker_gone", "w2", "released: no longer needed")]
        master.end("demo", "succeeded", "all 2 ranks exited with 0")
        cloud.nodes, cloud.pools = [], []
        master.cost_micro_usd = 1_490_000
        await playing
    assert cloud.orders_of("preempt")[1] == {"node": "n2", "notice_s": 15.0}
    facts = story.facts(left_behind=())
    assert [(kill.worker, kill.generation) for kill in facts.kills] == [("w0", 1), ("w1", 2)]
    assert facts.cloud is not None
    taken = facts.cloud.taken
    assert [(each.node, each.worker) for each in taken] == [("n0", "w0"), ("n1", "w1"), ("n3", "w3"), ("n2", "w2")]
    assert [each.renewed_at is not None for each in taken] == [True, False, True, False]
    assert facts.cloud.regions == {"w3": "europe-west4"}
    assert (facts.cloud.calls, facts.cloud.bill_micro_usd) == ({"CreateCluster": 2}, 1_500_000)
    assert (facts.cloud.pools_left, facts.cloud.nodes_left) == ((), ())
    assert facts.cloud.cost is not None
    assert facts.cloud.cost.nodes_micro_usd == 1_490_000


async def test_nothing_else_happens_before_the_node_that_hung_is_repaired(
    master: FakeMaster, cloud: FakeSimulator, story: CloudStory
) -> None:
    async with asyncio.timeout(WAIT_S):
        playing = asyncio.create_task(story.play(), name="play")
        await eventually(lambda: master.submitted)
        master.views["demo"] = a_world(1, w0="sim_us", w1="sim_us")
        master.progress.append(steps(1, 0, 6))
        await eventually(lambda: cloud.orders_of("ready"))
        master.views["demo"] = a_world(2, w1="sim_us", w3="sim_us")
        master.progress.append(steps(2, 4, 30))
        asked = len(master.asked)
        await eventually(lambda: len(master.asked) >= asked + 3)
        master.end("demo", "succeeded", "all 2 ranks exited with 0")
        cloud.nodes, cloud.pools = [], []
        await playing
    assert not cloud.orders_of("preempt")


async def test_an_order_that_the_cloud_refuses_is_given_again(
    master: FakeMaster, cloud: FakeSimulator, story: CloudStory
) -> None:
    cloud.refuses = True
    async with asyncio.timeout(WAIT_S):
        playing = asyncio.create_task(story.play(), name="play")
        await eventually(lambda: master.submitted)
        master.views["demo"] = a_world(1, w0="sim_us", w1="sim_us")
        master.progress.append(steps(1, 0, 6))
        await eventually(lambda: cloud.orders)
        cloud.refuses = False
        await eventually(lambda: len(cloud.orders_of("ready")) > 1)
        master.end("demo", "succeeded", "all 2 ranks exited with 0")
        cloud.nodes, cloud.pools = [], []
        await playing
    facts = story.facts(left_behind=())
    assert facts.cloud is not None
    assert [taken.node for taken in facts.cloud.taken] == ["n0"]
