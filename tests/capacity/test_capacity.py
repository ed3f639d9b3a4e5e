"""The allocators' shell: requests of the core reach the cloud, and results of the cloud reach the job."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from controlplane.allocator.effects import Place
from controlplane.allocator.offers import Offer
from controlplane.allocator.placement import Placement
from controlplane.allocator.settings import AllocatorSettings
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.fleet_keeper import Controllers, FleetKeeper, creation_failed
from controlplane.capacity.shell import FleetTerms
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import (
    ClusterPlan,
    ClusterStatus,
    PoolInfo,
    PoolPlan,
    PoolRef,
    PoolStatus,
    Taint,
    system_pool,
)
from controlplane.clouds.outcomes import AlreadyExists, Done, Outcome, Refused, reason_of
from messages.clusters import ClusterHeartbeat, NodeObservation
from messages.events import Event
from messages.ids import ClusterName, JobName
from messages.labels import FLEET_LABEL, JOB_LABEL
from runtime.clock import SystemClock
from tests.capacity.builders import a_want, a_worker
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import eventually

JOB = JobName("demo")
US = ClusterName("us")
EU = ClusterName("eu")
OFFER = Offer(US, "us-central1-a", "g2-standard-8", 4, accelerator="nvidia-l4", accelerators_per_node=1)
ELSEWHERE = replace(OFFER, cluster=EU, zone="europe-west4-a")


class Stage:
    def __init__(self, cloud: FakeCloud, offers: tuple[Offer, ...], relist_s: float) -> None:
        self.placed: list[tuple[JobName, Placement]] = []
        self.shortage = ""
        self.reported: list[Event] = []
        self.capacity = Capacity(
            cloud,
            FleetTerms(offers, _with_a_longer_shutdown),
            SystemClock(),
            self.reported.append,
            self._place,
            AllocatorSettings(retry_s=0.01, quiet_s=0.05, relist_s=relist_s),
        )

    def _place(self, job: JobName, placed: Place) -> None:
        if placed.workers is not None:
            self.placed.append((job, placed.workers))
        self.shortage = placed.shortage


def _with_a_longer_shutdown(plan: PoolPlan) -> PoolPlan:
    return replace(plan, shutdown_grace_s=120)


@asynccontextmanager
async def a_stage(
    cloud: FakeCloud,
    *,
    wanted: int = 3,
    ended: str | None = None,
    offers: tuple[Offer, ...] = (OFFER,),
    relist_s: float = 0.2,
) -> AsyncIterator[Stage]:
    stage = Stage(cloud, offers, relist_s)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_hold(stage, wanted, ended))
        yield stage
        running.cancel()


async def _hold(stage: Stage, wanted: int, ended: str | None) -> None:
    async with asyncio.TaskGroup() as tasks:
        stage.capacity.start_allocator(tasks, JOB, a_want(wanted, ended))


async def test_a_job_gets_a_pool_with_what_the_fleet_adds_and_a_taint_that_keeps_others_away() -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud):
        await eventually(lambda: cloud.plans)
    plan = cloud.plans[0]
    assert (plan.size, plan.kind.zone, plan.shutdown_grace_s, plan.labels[JOB_LABEL]) == (3, "us-central1-a", 120, JOB)
    assert plan.taints == (Taint(JOB_LABEL, JOB, "NoSchedule"),)


async def test_the_job_is_told_where_its_workers_will_be() -> None:
    async with a_stage(FakeCloud("us")) as stage:
        await eventually(lambda: (JOB, {US: 3}) in stage.placed)
    assert any("pool of 3" in event.text for event in stage.reported)


async def test_nothing_is_asked_for_before_the_cloud_has_said_what_there_is() -> None:
    cloud = FakeCloud("us")
    cloud.refusals = 2
    async with a_stage(cloud):
        await eventually(lambda: cloud.plans)
    assert cloud.refusals == 0


async def test_when_the_job_has_ended_its_pools_go_and_it_is_settled() -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud) as stage:
        await eventually(cloud.pools)
        stage.capacity.want(JOB, a_want(3, "it has succeeded"))
        await eventually(lambda: not cloud.pools())
        await eventually(lambda: stage.capacity.is_settled(JOB))
        stage.capacity.hear_heartbeat(ClusterHeartbeat(cluster=US, incarnation="a1", seq=1))
        await eventually(lambda: "capacity/demo" not in {task.get_name() for task in asyncio.all_tasks()})
    assert stage.placed[-1] == (JOB, {})
    assert [event.kind for event in stage.reported].count("capacity_gone") == 1


@pytest.mark.parametrize("settled", [True, False])
async def test_another_job_of_the_name_of_one_that_ended_gets_machines_too(settled: bool) -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud) as stage, asyncio.TaskGroup() as tasks:
        await eventually(cloud.pools)
        stage.capacity.want(JOB, a_want(3, "it has succeeded"))
        if settled:
            await eventually(lambda: stage.capacity.is_settled(JOB))
        stage.capacity.start_allocator(tasks, JOB, a_want(4))
        await eventually(lambda: [pool.size for pool in cloud.pools()] == [4])
        stage.capacity.want(JOB, a_want(4, "it has succeeded"))
        await eventually(lambda: stage.capacity.is_settled(JOB))
    assert not cloud.pools()


async def test_a_job_that_ended_under_an_earlier_master_leaves_no_pool_either() -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud):
        await eventually(cloud.pools)
    async with a_stage(cloud, ended="it has failed"):
        await eventually(lambda: not cloud.pools())


async def test_a_job_that_was_there_before_its_cluster_gets_its_pool_as_soon_as_the_cluster_is_ready() -> None:
    cloud = FakeCloud()
    waits_for = "it is being created"
    async with a_stage(cloud, relist_s=600.0) as stage:
        await eventually(lambda: f"cluster {US}" in stage.shortage)
        assert waits_for not in stage.shortage
        stage.capacity.hear_of_cluster(US, waits_for)
        await eventually(lambda: f"cluster {US}" in stage.shortage and waits_for in stage.shortage)
        cloud.add_cluster(US)
        stage.capacity.hear_of_cluster(US, "")
        await eventually(cloud.pools)
        await eventually(lambda: not stage.shortage)


async def test_why_nothing_can_be_had_is_told_to_the_job_with_what_to_do() -> None:
    cloud = FakeCloud("us")
    cloud.outcome = Refused("Google rejected the credentials", "sign in again")
    async with a_stage(cloud) as stage:
        await eventually(lambda: stage.shortage)
    assert stage.shortage.startswith("g2-standard-8 in us-central1-a ")
    assert stage.shortage.endswith(f": {reason_of(cloud.outcome)}")


async def test_where_the_cloud_cannot_even_be_asked_the_job_is_told_so() -> None:
    cloud = FakeCloud("us")
    refusal = Refused("There is no project atlantis", "correct `cloud.project`")
    cloud.refusal = refusal
    async with a_stage(cloud) as stage:
        await eventually(lambda: stage.shortage)
        assert stage.shortage.endswith(f": {reason_of(refusal)}") and "us-central1" not in stage.shortage
        cloud.refusal = None
        await eventually(cloud.pools)
        await eventually(lambda: not stage.shortage)


async def test_when_fewer_are_wanted_the_node_that_falls_free_goes_and_no_worker_is_put_there_again() -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud) as stage:
        await eventually(cloud.pools)
        stage.capacity.hear_heartbeat(a_topology(cloud, busy=(0, 1, 2)))
        await eventually(lambda: any(event.kind == "capacity_reached" for event in stage.reported))
        stage.capacity.want(JOB, a_want(2))
        await eventually(lambda: stage.placed[-1] == (JOB, {US: 2}))
        assert [pool.size for pool in cloud.pools()] == [3]
        stage.capacity.hear_heartbeat(a_topology(cloud, busy=(0, 2)))
        await eventually(lambda: cloud.removed == ["node-1"])
    assert [pool.size for pool in cloud.pools()] == [2]
    assert stage.placed[-1] == (JOB, {US: 2})


def a_topology(cloud: FakeCloud, busy: tuple[int, ...]) -> ClusterHeartbeat:
    """Three nodes; those that are not busy have no worker."""
    pool = cloud.pools()[0].ref.pool
    nodes = tuple(NodeObservation(f"node-{number}", f"u{number}", pool=pool, job=JOB) for number in range(3))
    workers = tuple(a_worker(f"w{number}-0001", f"node-{number}") for number in busy)
    return ClusterHeartbeat(cluster=US, incarnation="a1", seq=1, nodes=nodes, workers=workers)


class Keeping:
    """A fleet keeper whose clusters are silent unless a test calls `hears`."""

    def __init__(self, cloud: FakeCloud, *clusters: str, silence_s: float = 0.2) -> None:
        self.installed: list[ClusterName] = []
        self.reported: list[Event] = []
        self.heard_s: dict[ClusterName, float] = {}
        self.waits: list[tuple[ClusterName, str]] = []
        self.is_heard_while_failing = False
        ours = {FLEET_LABEL: "ours"}
        plans = [ClusterPlan(ClusterName(name), "here", system_pool("here", "e2", 1), ours) for name in clusters]
        self.keeper = FleetKeeper(
            cloud,
            plans,
            self._install,
            self.reported.append,
            Controllers(self.heard_s.get, self._report_wait, self._wait_while_failing),
            SystemClock(),
            silence_s=silence_s,
        )

    def hears(self, cluster: ClusterName) -> None:
        self.heard_s[cluster] = SystemClock().monotonic_s()

    def kinds(self) -> list[str]:
        return sorted(event.kind for event in self.reported)

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.keeper.run())
            yield
            running.cancel()

    async def _install(self, cluster: ClusterName) -> None:
        self.installed.append(cluster)

    def _report_wait(self, cluster: ClusterName, waits_for: str) -> None:
        self.waits.append((cluster, waits_for))

    async def _wait_while_failing(self, cluster: ClusterName) -> None:
        if self.is_heard_while_failing:
            self.hears(cluster)


async def test_clusters_are_made_or_adopted_and_then_installed() -> None:
    cloud = FakeCloud("us")
    keeping = Keeping(cloud, "us", "eu")
    async with keeping.runs():
        await eventually(lambda: keeping.kinds() == ["cluster_ready", "cluster_ready"])
    assert cloud.made == ["eu"]
    assert sorted(set(keeping.installed)) == ["eu", "us"]


async def test_a_cluster_whose_creation_failed_is_removed_and_made_again() -> None:
    cloud = FakeCloud("us")
    cloud.infos[US] = replace(
        cloud.infos[US], ready=False, status=ClusterStatus.ERROR, detail="no addresses", labels={FLEET_LABEL: "ours"}
    )
    keeping = Keeping(cloud, "us")
    async with keeping.runs():
        await eventually(lambda: "cluster_ready" in keeping.kinds())
    assert cloud.made == [US]
    assert keeping.waits == [(US, creation_failed("no addresses", Done())), (US, "")]
    assert "no addresses" in keeping.waits[0][1]


NOT_DELETED = Refused("no permission to delete", "give it")


class UndeletableCloud(FakeCloud):
    async def delete_cluster(self, cluster: ClusterName) -> Outcome:
        return NOT_DELETED


async def test_a_failed_cluster_that_cannot_be_removed_says_why() -> None:
    cloud = UndeletableCloud("us")
    cloud.infos[US] = replace(
        cloud.infos[US], ready=False, status=ClusterStatus.ERROR, detail="no addresses", labels={FLEET_LABEL: "ours"}
    )
    keeping = Keeping(cloud, "us")
    async with keeping.runs():
        await eventually(lambda: keeping.waits)
    [(_, why)] = keeping.waits
    assert why == creation_failed("no addresses", NOT_DELETED)
    assert "no addresses" in why and reason_of(NOT_DELETED) in why


def a_job_pool() -> PoolInfo:
    labels = {JOB_LABEL: "other"}
    return PoolInfo(PoolRef(US, "p"), MachineKind("us-central1-a", "g2", "L4", 1, True), 1, PoolStatus.RUNNING, labels)


@pytest.mark.parametrize(("labels", "pools"), [({}, ()), ({FLEET_LABEL: "ours"}, (a_job_pool(),))])
async def test_a_failed_cluster_of_somebody_else_or_in_which_a_job_has_nodes_is_left_alone(
    labels: dict[str, str], pools: tuple[PoolInfo, ...]
) -> None:
    cloud = FakeCloud("us")
    cloud.infos[US] = replace(
        cloud.infos[US], ready=False, status=ClusterStatus.ERROR, detail="broken", labels=labels, pools=pools
    )
    keeping = Keeping(cloud, "us")
    async with keeping.runs():
        await eventually(lambda: keeping.waits)
    assert (cloud.made, keeping.waits) == ([], [(US, "broken")])


async def test_a_cluster_that_another_master_makes_at_the_same_time_is_adopted() -> None:
    cloud = FakeCloud()
    cloud.outcome = AlreadyExists("us")
    keeping = Keeping(cloud, "us")
    async with keeping.runs():
        await eventually(lambda: keeping.waits)
        cloud.add_cluster(US)
        await eventually(lambda: "cluster_ready" in keeping.kinds())
    assert cloud.made == [US]
    assert keeping.installed[:1] == [US]


async def test_a_cluster_whose_controller_falls_silent_is_installed_again_and_announced_again() -> None:
    keeping = Keeping(FakeCloud("us"), "us")
    async with keeping.runs():
        await eventually(lambda: "cluster_ready" in keeping.kinds())
        keeping.hears(US)
        await eventually(lambda: "cluster_silent" in keeping.kinds())
        installed = len(keeping.installed)
        await eventually(lambda: len(keeping.installed) > installed)
        await eventually(lambda: keeping.kinds().count("cluster_ready") == 2)
        await eventually(lambda: len(keeping.installed) > installed + 1, what="an installation without an event")
    assert [event.kind for event in keeping.reported] == ["cluster_ready", "cluster_silent", "cluster_ready"]
    assert "us" in keeping.reported[-1].why and "silent" in keeping.reported[-1].why


async def test_a_cluster_that_had_to_wait_later_is_announced_as_ready_again() -> None:
    cloud = FakeCloud("us")
    keeping = Keeping(cloud, "us")
    async with keeping.runs():
        await eventually(lambda: "cluster_ready" in keeping.kinds())
        cloud.refusals = 1
        await eventually(lambda: len(keeping.reported) == 3)
    assert [event.kind for event in keeping.reported] == ["cluster_ready", "cluster_waits", "cluster_ready"]


async def test_a_controller_that_is_heard_again_while_its_failure_is_watched_is_not_given_more_time() -> None:
    keeping = Keeping(FakeCloud("us"), "us", silence_s=0.05)
    keeping.is_heard_while_failing = True
    async with keeping.runs():
        await eventually(lambda: len(keeping.installed) >= 9, timeout_s=8.0, what="eight silences of 0.05 s")


async def test_a_cluster_that_is_gone_when_it_is_looked_after_is_made_again() -> None:
    cloud = FakeCloud("us")
    keeping = Keeping(cloud, "us")
    async with keeping.runs():
        await eventually(lambda: keeping.installed)
        await cloud.delete_cluster(US)
        await eventually(lambda: cloud.made == [US])


async def test_nodes_of_a_lost_cluster_are_asked_for_elsewhere_all_at_once() -> None:
    cloud = FakeCloud("us", "eu")
    async with a_stage(cloud, wanted=2, offers=(OFFER, ELSEWHERE)) as stage:
        await eventually(cloud.pools)
        pool = cloud.pools()[0].ref
        nodes = tuple(NodeObservation(f"node-{number}", f"u{number}", pool=pool.pool) for number in range(2))
        stage.capacity.hear_heartbeat(ClusterHeartbeat(cluster=US, incarnation="a1", seq=1, nodes=nodes))
        await eventually(lambda: any(event.kind == "capacity_reached" for event in stage.reported))
        stage.capacity.want(JOB, a_want(2, lost=frozenset({US})))
        await eventually(lambda: [(plan.kind.zone, plan.size) for plan in cloud.plans[1:]] == [(ELSEWHERE.zone, 2)])
