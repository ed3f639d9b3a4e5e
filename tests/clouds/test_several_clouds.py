"""A second cloud: the same contract, one fleet file, one allocator and one plan for both."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.allocator.offers import pool_plan
from controlplane.allocator.settings import AllocatorSettings
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.fleet_offers import limits_of, priced
from controlplane.capacity.shell import FleetTerms
from controlplane.catalog.memory import Memory, estimate
from controlplane.catalog.shipped import shipped_links
from controlplane.clouds import providers
from controlplane.clouds.composite import Clouds, scope_of
from controlplane.clouds.gke.fleet_file import GkeFleet
from controlplane.clouds.interface import PROJECT, Cloud, PoolRef, QuotaKey
from controlplane.clouds.outcomes import Done, NotFound, QuotaExceeded, Refused, Unreachable
from controlplane.clouds.spec import Fleet, FleetOfSeveralClouds, parts_of
from controlplane.fleet.files import read_fleet
from controlplane.fleet.interpretation import (
    bootstrap_settings,
    cluster_plans,
    complete,
    known_prices,
    offers,
    open_cloud,
    places,
    pull_hint,
    removal_command,
)
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, market_of
from controlplane.planning.plan import plan as make_plan
from controlplane.throughput.profile import Compute, Profile
from messages.ids import ClusterName, JobName
from messages.labels import JOB_LABEL
from runtime.clock import SystemClock
from runtime.errors import UserError
from tests.capacity.builders import a_want
from tests.clouds import hills
from tests.clouds.contract import CloudContract, Stage
from tests.clouds.hills import CARDS_EVERYWHERE, Hills, HillsCloud, HillsFleet, HillsProvider, HillsStage
from tests.clouds.stand_in.stage import ZONE, StandInStage
from tests.conftest import eventually

JOB = JobName("a-job")
HIGH, LOW = ClusterName("high"), ClusterName("low")


class TestAnotherProvider(CloudContract):
    @pytest.fixture
    async def stage(self) -> AsyncIterator[HillsStage]:
        yield HillsStage()


class TestTheCompositeOfTwoClouds(CloudContract):
    """The contract for one cloud beside another."""

    @pytest.fixture
    async def stage(self) -> AsyncIterator[Stage]:
        stage = HillsStage()
        beside = HillsCloud(Hills())
        alone = stage.another

        async def another() -> Cloud:
            parts = {"here": await alone(), "beside": beside}
            return Clouds(parts, {"here": [(stage.cluster.name, (hills.ZONE,))], "beside": []})

        stage.cloud = await another()
        stage.another = another  # type: ignore[method-assign]
        yield stage

    async def test_quotas_can_be_read(self, stage: Stage) -> None:
        everywhere = await stage.cloud.quotas(PROJECT)
        assert not isinstance(everywhere, Unreachable | Refused)
        scopes = [quota.key.scope for quota in everywhere]
        assert scopes == [scope_of("here"), scope_of("beside")]
        regional = await stage.cloud.quotas(stage.region)
        assert not isinstance(regional, Unreachable | Refused)
        needs = stage.cloud.needs(stage.pool, [*everywhere, *regional])
        assert {key.scope for key in needs} == {stage.region, scope_of("here")}
        assert isinstance(await stage.cloud.quotas("atlantis-north1"), Refused)


@dataclass
class Ground:
    """A fleet of two clouds, each with a cluster."""

    hills: Hills
    google: StandInStage
    file: Path

    def written(self, **changes: Any) -> dict[str, Any]:
        settings = self.google.settings
        endpoints = {"gke": settings.endpoint, "insecure": True, "compute": settings.compute_url}
        google = {
            "kind": "gke",
            "project": settings.project,
            "credentials": settings.credentials_file,
            "endpoints": endpoints,
        }
        l4 = {"accelerator": "nvidia-l4", "max_nodes": 2}
        return {
            "name": "both",
            "clouds": {
                "google": {"cloud": google, "nodes": {"disk": {"size_gb": 50}}},
                "hills": {"cloud": {"kind": "hills", "laird": "Ann"}, "nodes": {"taints": [{"key": "steep"}]}},
            },
            "clusters": [
                {"name": "low", "cloud": "google", "location": ZONE, "zones": [ZONE]},
                {"name": "high", "cloud": "hills", "location": hills.ZONE, "zones": [hills.ZONE]},
            ],
            "offers": [
                {"cluster": "high", "zone": hills.ZONE, "machine_type": hills.MACHINE, **l4},
                {"cluster": "low", "zone": ZONE, "machine_type": "g2-standard-8", **l4},
            ],
            "pods": {"image": "tradewind:1"},
            **changes,
        }

    def read(self, **changes: Any) -> Fleet:
        self.file.write_text(yaml.safe_dump(self.written(**changes)))
        return read_fleet(self.file)


@pytest.fixture
def the_hills() -> Iterator[Hills]:
    known = Hills()
    providers.register(hills.KIND, HillsProvider(known))
    yield known
    providers.unregister(hills.KIND)


@pytest.fixture
async def ground(tmp_path: Path, the_hills: Hills) -> AsyncIterator[Ground]:
    async with StandInStage.open(tmp_path) as google:
        yield Ground(the_hills, google, tmp_path / "fleet.yaml")


def test_a_folder_is_a_provider_and_others_are_registered(the_hills: Hills) -> None:
    assert providers.kinds() == ["gke", "hills"]
    with pytest.raises(KeyError):
        providers.provider_of("plains")


async def test_each_cloud_s_part_of_the_file_is_decoded_by_its_provider(ground: Ground) -> None:
    fleet = ground.read()
    assert isinstance(fleet, FleetOfSeveralClouds)
    assert {name: type(part) for name, part in parts_of(fleet).items()} == {"google": GkeFleet, "hills": HillsFleet}
    assert [plan.name for plan in cluster_plans(fleet)] == ["low", "high"]
    assert [(place.region, place.cloud) for place in places(fleet)] == [
        ("us-central1", "gke"),
        (hills.REGION, "hills"),
    ]
    assert [offer.cluster for offer in offers(fleet)] == ["high", "low"], "in the file's order"
    assert bootstrap_settings(fleet).node_taints == ("steep=:NoSchedule",)
    assert pull_hint(fleet, {})("hills.example/x:1") == hills.PULL_HINT


async def test_mistakes_of_all_parts_are_reported_together_and_at_their_place(ground: Ground) -> None:
    written = ground.written()
    written["clouds"]["hills"]["cloud"]["laird"] = 7
    written["clusters"][0]["pod_rangge"] = "x"
    written["offers"][0]["max_nodes"] = 0
    with pytest.raises(UserError) as caught:
        ground.read(**written)
    assert sorted(problem.partition(":")[0] for problem in caught.value.problems) == [
        "clouds.hills.cloud.laird",
        "clusters[0].pod_rangge",
        "offers[0].max_nodes",
    ]


@pytest.mark.parametrize(
    ("change", "place", "values"),
    [
        ({"cloud": "sea"}, "clusters[1].cloud", ["google, hills"]),
        ({"name": "low"}, "clusters[1].name", ["clusters[0]"]),
        ({"location": ZONE, "zones": [ZONE]}, "clusters", ["us-central1", "google", "hills"]),
    ],
)
async def test_a_cluster_and_a_region_belong_to_one_cloud(
    ground: Ground, change: dict[str, Any], place: str, values: list[str]
) -> None:
    written = ground.written()
    written["clusters"][1] |= change
    written["offers"][0] |= {"cluster": written["clusters"][1]["name"], "zone": written["clusters"][1]["zones"][0]}
    with pytest.raises(UserError) as caught:
        ground.read(**written)
    texts = [text for found, _, text in (each.partition(": ") for each in caught.value.problems) if found == place]
    assert any(all(value in text for value in values) for text in texts), caught.value.problems


async def opened(ground: Ground) -> tuple[Fleet, Cloud]:
    fleet = ground.read()
    cloud = await open_cloud(fleet, {})
    for plan in cluster_plans(fleet):
        assert await cloud.create_cluster_with_node_pool(plan) == Done()
    return fleet, cloud


async def test_a_job_takes_nodes_of_both_clouds_in_the_fleet_s_order(ground: Ground) -> None:
    fleet, cloud = await opened(ground)
    capacity = Capacity(
        cloud,
        FleetTerms(offers(fleet), lambda plan: complete(fleet, plan, {})),
        SystemClock(),
        lambda event: None,
        lambda job, placed: None,
        AllocatorSettings(retry_s=0.05),
    )

    def sizes() -> dict[str, int]:
        return {pool.ref.cluster: pool.target for pool in capacity.allocators()[JOB].pools.values()}

    async with asyncio.TaskGroup() as tasks:
        capacity.start_allocator(tasks, JOB, a_want(3))
        await eventually(lambda: sizes() == {HIGH: 2, LOW: 1}, what="two nodes in the hills, one at Google")
        capacity.want(JOB, a_want(0, "enough"))
        await eventually(lambda: capacity.is_settled(JOB), what="all nodes given back", timeout_s=30)
    assert not ground.hills.fields
    await cloud.close()


async def test_calls_go_to_the_cloud_of_the_cluster(ground: Ground) -> None:
    fleet, cloud = await opened(ground)
    high = next(offer for offer in offers(fleet) if offer.cluster == HIGH)
    plan = complete(fleet, pool_plan(JOB, high, 1), {})
    assert [taint.key for taint in plan.taints] == ["steep"], "only what its own cloud's nodes have"
    assert await cloud.create_pool(HIGH, plan) == Done()
    assert isinstance(cloud, Clouds)
    machines = await cloud.part("hills").machines()
    assert not isinstance(machines, Unreachable | Refused)
    assert [(each.kind.machine_type, each.labels[JOB_LABEL]) for each in machines] == [(hills.MACHINE, JOB)]
    assert removal_command(fleet, {}, machines[0]) == f"hills remove {machines[0].name}"
    assert await cloud.access_token(HIGH) == "a-token-for-high"
    assert isinstance(await cloud.resize_pool(PoolRef(ClusterName("nowhere"), "p"), 1), NotFound)
    ground.hills.cards = 1
    refused = await cloud.resize_pool(PoolRef(HIGH, plan.name), 2)
    assert isinstance(refused, QuotaExceeded)
    (short,) = refused.shortfalls
    assert QuotaKey(short.scope, short.metric) == QuotaKey(scope_of("hills"), CARDS_EVERYWHERE)
    ground.hills.is_away = True
    assert isinstance(await cloud.clusters(), Unreachable), "half a listing would look as if the rest were gone"
    assert isinstance(await cloud.resize_pool(PoolRef(LOW, "none"), 1), NotFound), "the other cloud still works"
    await cloud.close()


async def test_a_token_for_a_cluster_that_no_cloud_has_is_refused(ground: Ground) -> None:
    _, cloud = await opened(ground)
    with pytest.raises(UserError, match="nowhere"):
        await cloud.access_token(ClusterName("nowhere"))
    await cloud.close()


async def test_calls_go_where_the_newest_listing_shows_a_cluster_that_the_file_does_not_name() -> None:
    old, stage = ClusterName("old"), HillsStage()
    here, there = Hills(), Hills()
    cloud = Clouds({"here": HillsCloud(here), "there": HillsCloud(there)}, {"here": [], "there": []})
    here.clusters[old] = replace(stage.cluster, name=old)
    await cloud.clusters()
    there.clusters[old] = here.clusters.pop(old)
    await cloud.clusters()
    assert await cloud.delete_cluster(old) == Done()
    assert not there.clusters
    await cloud.clusters()
    assert isinstance(await cloud.delete_cluster(old), NotFound)


@pytest.mark.parametrize("is_planned", [True, False], ids=["named in the file", "made by others"])
async def test_a_cluster_of_the_same_name_in_two_clouds_is_refused(is_planned: bool) -> None:
    twice, stage = ClusterName("twice"), HillsStage()
    here, there = Hills(), Hills()
    there.clusters[twice] = replace(stage.cluster, name=twice)
    if not is_planned:
        here.clusters[twice] = there.clusters[twice]
    planned = [(twice, (hills.ZONE,))] if is_planned else []
    cloud = Clouds({"here": HillsCloud(here), "there": HillsCloud(there)}, {"here": planned, "there": []})
    listed = await cloud.clusters()
    assert isinstance(listed, Refused)
    assert all(name in listed.detail for name in ("cluster twice", "here", "there"))


async def test_a_plan_compares_the_machines_of_both_clouds(ground: Ground, tmp_path: Path) -> None:
    fleet, cloud = await opened(ground)
    known = known_prices(fleet, {"TRADEWIND_PRICES_CACHE": str(tmp_path / "prices.json")}, cloud)
    those = priced(known.catalog, offers(fleet))
    assert {offer.zone for offer in those} == {ZONE, hills.ZONE}
    market = market_of(
        Criteria(max_workers=2),
        those,
        shipped_links(),
        seen=lambda zone, accelerator: estimate(Memory(), zone, accelerator, 0.0),
        limits=limits_of(offers(fleet)),
    )
    profile = Profile(compute={"L4": Compute(0.1)}, gradient_bytes=10**6, global_batch=64)
    made = make_plan(Criteria(max_workers=2), profile, market, CurrentCapacity())
    assert {kind.zone for kind in made.placement} == {hills.ZONE}, "it is by far the cheapest"
    await cloud.close()
