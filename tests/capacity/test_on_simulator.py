"""A job's capacity through Google's own clients, against the simulator: long shortages and wrong settings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.allocator.effects import Place
from controlplane.allocator.offers import Offer, pool_plan, pool_ref
from controlplane.allocator.settings import AllocatorSettings
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.fleet_keeper import Controllers, FleetKeeper
from controlplane.capacity.shell import FleetTerms
from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.gke.credentials import RENEW_KEY
from controlplane.clouds.gke.quotas import quotas_page, too_small
from controlplane.clouds.interface import PoolStatus
from controlplane.clouds.outcomes import Done, Shortfall, StockedOut
from messages.clusters import ClusterHeartbeat, NodeObservation
from messages.events import Event
from messages.ids import ClusterName, JobName
from runtime.clock import SystemClock
from tests.capacity.builders import a_want
from tests.clouds.contract import found, until
from tests.clouds.simulated import REGION, SMALL_DISKS, ZONE, SimulatedStage
from tests.clouds.stand_in.keys import write_key
from tests.conftest import eventually

JOB = JobName("a-job")
OTHER_ZONE = "us-central1-b"


class Bench:
    """A job that wants two nodes in either of two zones."""

    def __init__(self, stage: SimulatedStage, cloud: GkeCloud, hang_s: float) -> None:
        self.stage = stage
        self.cloud = cloud
        self.reported: list[Event] = []
        self.shortages: list[str] = []
        self.heard_s: dict[ClusterName, float] = {}
        here = Offer(stage.cluster.name, ZONE, "g2-standard-8", 4, accelerator="nvidia-l4", accelerators_per_node=1)
        self.offers = (here, replace(here, zone=OTHER_ZONE))
        clock = SystemClock()
        self.capacity = Capacity(
            cloud,
            FleetTerms(self.offers),
            clock,
            self.reported.append,
            self._place,
            AllocatorSettings(retry_s=0.05, retry_max_s=0.2, relist_s=0.5, hang_s=hang_s, loss_cooldown_s=1.0),
        )
        self.keeper = FleetKeeper(
            cloud,
            [stage.cluster],
            _nothing_to_install,
            self.reported.append,
            Controllers(self.heard_s.get, self.capacity.hear_of_cluster, _no_failure_is_known),
            clock,
        )

    async def nodes(self) -> list[int]:
        """The number of running nodes in each zone."""
        return [len(await self.stage.nodes(pool_ref(JOB, offer))) for offer in self.offers]

    async def sizes(self) -> list[int]:
        """The target of each zone."""
        pools = [pool for cluster in found(await self.cloud.clusters()) for pool in cluster.pools]
        targets = {pool.ref: pool.size for pool in pools}
        return [targets.get(pool_ref(JOB, offer), 0) for offer in self.offers]

    async def all_nodes(self) -> int:
        return sum(await self.nodes())

    async def all_sizes(self) -> int:
        return sum(await self.sizes())

    async def look(self) -> None:
        """Report the nodes like a cluster-controller."""
        observations: list[NodeObservation] = []
        for offer in self.offers:
            ref = pool_ref(JOB, offer)
            observations += [
                NodeObservation(name, name, pool=ref.pool, job=JOB) for name in await self.stage.nodes(ref)
            ]
        cluster = self.stage.cluster.name
        self.heard_s[cluster] = SystemClock().monotonic_s()
        self.capacity.hear_heartbeat(
            ClusterHeartbeat(cluster=cluster, incarnation="a", seq=1, nodes=tuple(observations))
        )

    def _place(self, job: JobName, placed: Place) -> None:
        self.shortages.append(placed.shortage)


async def _no_failure_is_known(cluster: ClusterName) -> None:
    del cluster


async def _nothing_to_install(cluster: ClusterName) -> None:
    del cluster


@asynccontextmanager
async def a_bench(
    folder: Path, *, hang_s: float = 60.0, gke: dict[str, Any] | None = None, **rules: Any
) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(SimulatedStage.open(folder, **rules))
        settings = msgspec.structs.replace(stage.settings, **(gke or {}))
        cloud = await GkeCloud.open(settings, SMALL_DISKS)
        stack.push_async_callback(cloud.close)
        yield Bench(stage, cloud, hang_s)


@asynccontextmanager
async def running(bench: Bench, *, clusters: bool = True) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        parts = [tasks.create_task(_hold(bench)), tasks.create_task(_heartbeats(bench))]
        if clusters:
            parts.append(tasks.create_task(bench.keeper.run()))
        yield
        for part in parts:
            part.cancel()


async def _hold(bench: Bench) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench.capacity.start_allocator(tasks, JOB, a_want(2))


async def _heartbeats(bench: Bench) -> None:
    while True:
        await bench.look()
        await asyncio.sleep(0.05)


# Shortages


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param({"stockout_s": 0.2}, id="the operation tells"),
        pytest.param({"stockout_s": 100_000.0, "give_up_s": 2.0}, id="the operation goes on, and refuses others"),
    ],
)
async def test_a_zone_that_has_no_machines_for_long_is_lowered_first_and_brings_no_surplus_when_it_has_some_again(
    tmp_path: Path, rules: dict[str, float]
) -> None:
    async with a_bench(tmp_path, gke={"nodes_s": 0.5}, **rules) as bench:
        await bench.stage.stock_out()
        async with running(bench):
            await until(bench.nodes, [0, 2])
            assert await bench.sizes() == [0, 2]
            await bench.stage.stock_out(on=False)
            await _for_a_while(bench)
            assert await bench.nodes() == [0, 2]
    reported = [
        event.kind for event in bench.reported if event.kind in ("pool_created", "zone_stocked_out", "pool_lowered")
    ]
    assert reported == ["pool_created", "zone_stocked_out", "pool_lowered", "pool_created"]


LATE = {"stockout_s": 100_000.0, "give_up_s": 100_000.0}
"""GKE never reports the stockout."""


@pytest.mark.slow
async def test_a_stockout_that_gke_does_not_report_sends_the_job_to_another_zone(tmp_path: Path) -> None:
    quick = {"errors_first_s": 0.02, "errors_most_s": 0.05}
    async with a_bench(tmp_path, gke=quick, **LATE) as bench:
        await bench.stage.order("capacity", {"zone": ZONE, "accelerator": "nvidia-l4", "capacity": 1})
        async with running(bench):
            await until(bench.nodes, [1, 1])
            assert await bench.sizes() == [1, 1]
            await bench.stage.order("capacity", {"zone": ZONE, "accelerator": "nvidia-l4", "capacity": 8})
            await _for_a_while(bench)
            assert await bench.nodes() == [1, 1]
    reported = [
        event.kind for event in bench.reported if event.kind in ("pool_created", "zone_stocked_out", "pool_lowered")
    ]
    assert reported == ["pool_created", "zone_stocked_out", "pool_created"]


@pytest.mark.slow
async def test_a_pool_that_was_created_in_error_is_used_when_its_nodes_came(tmp_path: Path) -> None:
    """GKE still calls it ERROR."""
    async with a_bench(tmp_path, stockout_s=0.2, recreate_s=100.0) as bench:
        stage, offer = bench.stage, bench.offers[0]
        market = {"zone": ZONE, "accelerator": "nvidia-l4"}
        assert await bench.cloud.create_cluster_with_node_pool(stage.cluster) == Done()
        await stage.order("capacity", market | {"capacity": 0})
        made = await bench.cloud.create_pool(offer.cluster, pool_plan(JOB, offer, 2))
        assert isinstance(made, StockedOut)
        await stage.order("capacity", market | {"capacity": 8})
        await until(bench.nodes, [2, 0])
        async with running(bench, clusters=False):
            await eventually(lambda: "capacity_reached" in {event.kind for event in bench.reported})
            lost = min(await stage.nodes(pool_ref(JOB, offer)))
            await stage.order("preempt", {"node": lost, "notice_s": 0})
            await _for_a_while(bench)
            await until(bench.all_nodes, 2)
    assert not {event.kind for event in bench.reported} & {"zone_stocked_out", "pool_deleted"}


async def test_what_a_pool_that_could_not_be_lowered_brings_after_all_goes(tmp_path: Path) -> None:
    """The pool loses its nodes by name if they are visible before it can be lowered, otherwise as empty slots."""
    async with a_bench(tmp_path, hang_s=0.5, gke={"nodes_s": 0.3}, **LATE) as bench:
        await bench.stage.stock_out()
        unknown = {"api": "compute", "method": "instanceGroupManagers.listManagedInstances", "times": 1000}
        await bench.stage.order("refuse", unknown | {"code": "UNAVAILABLE", "message": "away"})
        async with running(bench):
            await until(bench.nodes, [0, 2])
            await until(bench.all_sizes, 4)
            await bench.stage.stock_out(on=False)
            await until(bench.all_sizes, 2)
            await until(bench.all_nodes, 2)


# Upgrades


@pytest.mark.slow
@pytest.mark.parametrize("surge", [0, 1])
async def test_an_upgrade_leaves_the_job_with_as_many_nodes_as_it_wants_and_gives_up_no_surge_node(
    tmp_path: Path, surge: int
) -> None:
    async with a_bench(tmp_path, boot_s=1.0) as bench, running(bench):
        await until(bench.nodes, [2, 0])
        here = pool_ref(JOB, bench.offers[0])
        before = await bench.stage.machines(here)
        body = {"cluster": here.cluster, "pool": here.pool, "forced": True}
        if surge:
            client = bench.cloud._client
            name = bench.cloud._names.pool(bench.stage.cluster.location, here)
            settings = {"max_surge": 1, "max_unavailable": 0}
            await client._call(client._gke.update_node_pool, {"name": name, "upgrade_settings": settings})
            await until(lambda: _is_updating(bench), False)
        await bench.stage.order("upgrade", body)
        if surge:
            await until(bench.all_sizes, 3)
            await _for_a_while(bench)
            assert _abandoned(bench) == []
        await until(lambda: _is_updating(bench), False)
        await until(bench.all_nodes, 2)
        await until(bench.all_sizes, 2)
        assert not before & await bench.stage.machines(here)


def _abandoned(bench: Bench) -> list[str]:
    return [event.text for event in bench.reported if event.kind in ("nodes_removed", "pool_lowered")]


async def _is_updating(bench: Bench) -> bool:
    pools = [pool for cluster in found(await bench.cloud.clusters()) for pool in cluster.pools]
    return any(pool.status is PoolStatus.UPDATING for pool in pools)


async def _for_a_while(bench: Bench) -> None:
    """Wait for as long as three listings take, so that a forgotten node would show."""
    cluster = bench.stage.cluster.name
    began = bench.heard_s.get(cluster, 0.0)
    await eventually(lambda: bench.heard_s.get(cluster, 0.0) > began + 1.5)


# Bad beginnings


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({"credentials_file": "/nowhere/key.json"}, ["/nowhere/key.json", "--write-credentials /nowhere/key.json"]),
        ({"project": "atlantis"}, ["project atlantis", "`cloud.project`"]),
    ],
)
async def test_a_job_that_can_have_nothing_says_why_and_what_to_do(
    tmp_path: Path, settings: dict[str, str], values: list[str]
) -> None:
    async with a_bench(tmp_path, gke=settings) as bench, running(bench):
        await eventually(lambda: bench.shortages and bench.shortages[-1])
        _is_one_line_with(bench.shortages[-1], *values)
        await eventually(lambda: any(event.kind == "cluster_waits" for event in bench.reported))
    waits = next(event for event in bench.reported if event.kind == "cluster_waits")
    _is_one_line_with(waits.why, *values)


async def test_a_key_that_the_cloud_does_not_know_is_told_with_what_to_do(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        token_url = bench.stage.settings.compute_url.replace("/compute/v1", "/token")
        key = write_key(tmp_path / "another.json", token_url)
        cloud = await GkeCloud.open(
            msgspec.structs.replace(bench.stage.settings, credentials_file=str(key)), SMALL_DISKS
        )
        other = Bench(bench.stage, cloud, 60.0)
        async with running(other):
            await eventually(lambda: other.shortages and other.shortages[-1])
        await cloud.close()
    _is_one_line_with(other.shortages[-1], RENEW_KEY)


async def test_a_disabled_api_is_told_with_the_command_that_enables_it_and_all_continues_when_it_is(
    tmp_path: Path,
) -> None:
    async with a_bench(tmp_path) as bench:
        await bench.stage.order("api", {"api": "gke", "disabled": True})
        async with running(bench):
            await eventually(lambda: bench.shortages and bench.shortages[-1])
            project = bench.stage.settings.project
            _is_one_line_with(bench.shortages[-1], "services enable", "container.googleapis.com", f"project={project}`")
            await bench.stage.order("api", {"api": "gke", "disabled": False})
            await until(bench.nodes, [2, 0])
            await eventually(lambda: not bench.shortages[-1])


async def test_a_quota_of_nothing_is_told_with_where_to_ask_for_more(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        await bench.stage.take_quota()
        refused = too_small(Shortfall("NVIDIA_L4_GPUS", True, 2.0, 0.0), limit=0.0)
        async with running(bench):
            await eventually(lambda: bench.shortages and refused in bench.shortages[-1])
    said = bench.shortages[-1]
    assert f"NVIDIA_L4_GPUS in {REGION}" in said, "the limit of the other zone"
    _is_one_line_with(said, f"g2-standard-8 in {ZONE}", quotas_page(bench.stage.settings.project))


def _is_one_line_with(said: str, *values: str) -> None:
    assert all(value in said for value in values), said
    assert len(said) < 500
    assert "\n" not in said
    assert "Traceback" not in said


# Two masters


async def test_of_two_masters_that_want_the_same_cluster_one_makes_it_and_both_have_it(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        cloud = await GkeCloud.open(bench.stage.settings, SMALL_DISKS)
        other = Bench(bench.stage, cloud, 60.0)
        async with asyncio.TaskGroup() as tasks:
            keepers = [tasks.create_task(each.keeper.run()) for each in (bench, other)]
            await eventually(lambda: all(is_ready(each) for each in (bench, other)))
            for keeper in keepers:
                keeper.cancel()
        assert [cluster.name for cluster in found(await cloud.clusters())] == [bench.stage.cluster.name]
        await cloud.close()
        calls = await bench.stage.calls("CreateCluster")
    assert calls.count("OK") == 1


def is_ready(bench: Bench) -> bool:
    return any(event.kind == "cluster_ready" for event in bench.reported)
