"""Machines as Compute lists them, and invalid answers."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.gke.machines import machines_in
from controlplane.clouds.interface import MarketPrice, PoolRef
from controlplane.clouds.outcomes import Done, Refused, Unreachable
from messages.labels import JOB_LABEL
from tests.clouds.contract import a_pool
from tests.clouds.simulated import ZONE, SimulatedStage

ZONES = "https://www.googleapis.com/compute/v1/projects/p/zones"


def an_instance(**changes: Any) -> dict[str, Any]:
    """An instance in Google's notation; its times have a UTC offset."""
    return {
        "id": "4823918234",
        "name": "gke-a-cluster-a-pool-1",
        "zone": f"{ZONES}/us-central1-a",
        "machineType": f"{ZONES}/us-central1-a/machineTypes/g2-standard-8",
        "status": "RUNNING",
        "creationTimestamp": "2026-08-22T07:59:50.123-07:00",
        "lastStartTimestamp": "2026-08-22T08:00:00.500-07:00",
        "labels": {JOB_LABEL: "a-job"},
        "scheduling": {"provisioningModel": "SPOT", "preemptible": True, "onHostMaintenance": "TERMINATE"},
        "guestAccelerators": [{"acceleratorType": f"{ZONES}/z/acceleratorTypes/nvidia-l4", "acceleratorCount": 2}],
    } | changes


def reported(*instances: Any) -> list[str]:
    return [each.id for each in machines_in({"items": {"zones/us-central1-a": {"instances": list(instances)}}})]


def test_a_machine_is_what_compute_says_and_costs_from_its_last_start() -> None:
    (machine,) = machines_in({"items": {"zones/us-central1-a": {"instances": [an_instance()]}}})
    assert (machine.kind.zone, machine.kind.machine_type, machine.kind.spot) == ("us-central1-a", "g2-standard-8", True)
    assert (machine.kind.accelerator, machine.kind.accelerators) == ("L4", 2)
    assert machine.started_at == datetime(2026, 8, 22, 15, 0, 0, 500_000, UTC).timestamp()


def test_machines_that_are_stopped_cost_nothing_and_those_that_stop_still_do() -> None:
    stopped = [an_instance(id=status, status=status) for status in ("TERMINATED", "SUSPENDED", "STOPPING", "STAGING")]
    assert reported(*stopped) == ["STOPPING", "STAGING"]


@pytest.mark.parametrize("bad", [None, 3, {}, {"id": "1"}, an_instance(creationTimestamp="yesterday")])
def test_what_is_no_machine_is_passed_over(bad: Any) -> None:
    assert reported(bad, an_instance()) == ["4823918234"]


@pytest.mark.parametrize("bad", [{}, {"items": []}, {"items": {"zones/a": {"warning": {"code": "NO_RESULTS"}}}}])
def test_an_answer_without_machines_tells_of_none(bad: Any) -> None:
    assert list(machines_in(bad)) == []


async def test_machines_of_jobs_are_listed_from_their_start_to_their_end(tmp_path: Path) -> None:
    async with SimulatedStage.open(tmp_path) as stage:
        cloud, pool = stage.cloud, PoolRef(stage.cluster.name, stage.pool.name)
        assert await cloud.create_cluster_with_node_pool(stage.cluster) == Done()
        assert await cloud.machines() == [], "the system pool is no job's"
        assert await cloud.create_pool(stage.cluster.name, replace(a_pool(ZONE), size=2)) == Done()
        machines = await cloud.machines()
        assert not isinstance(machines, Unreachable | Refused)
        assert {machine.name for machine in machines} == await stage.nodes(pool)
        assert {(each.kind.machine_type, each.kind.accelerator, each.kind.spot) for each in machines} == {
            ("g2-standard-8", "L4", True)
        }
        assert {each.labels[JOB_LABEL] for each in machines} == {"a-job"}
        assert await cloud.delete_pool(pool) == Done()
        assert await cloud.machines() == []


async def test_many_machines_come_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.clouds.gke.compute.MACHINES_PER_PAGE", 2)
    async with SimulatedStage.open(tmp_path) as stage:
        assert await stage.cloud.create_cluster_with_node_pool(stage.cluster) == Done()
        assert await stage.cloud.create_pool(stage.cluster.name, replace(a_pool(ZONE), size=5)) == Done()
        machines = await stage.cloud.machines()
        assert not isinstance(machines, Unreachable | Refused)
        assert len({machine.id for machine in machines}) == 5


async def test_prices_of_the_moment_are_those_of_the_market(tmp_path: Path) -> None:
    async with SimulatedStage.open(tmp_path, speed=2.0) as stage:
        assert await stage.cloud.market() == [], "without a page there are none"
        url = stage.settings.compute_url.replace("/compute/v1", "/prices")
        cloud = await GkeCloud.open(msgspec.structs.replace(stage.settings, market_url=url))
        await stage.order("price", {"zone": ZONE, "accelerator": "L4", "price": 0.75})
        prices = await cloud.market()
        assert not isinstance(prices, Unreachable | Refused)
        assert MarketPrice(ZONE, "L4", 1_500_000, 1_708_000) in prices, "an hour of ours is two of the cloud's"
        elsewhere = MarketPrice("us-central1-f", "L4", 1_024_000, 1_708_000)
        assert elsewhere in prices, "also of zones in which nobody has anything yet"
        await cloud.close()


async def test_a_page_that_tells_no_prices_is_an_outcome(tmp_path: Path) -> None:
    async with SimulatedStage.open(tmp_path) as stage:
        base = stage.settings.compute_url.replace("/compute/v1", "")
        for path, outcome in (("/inventory", Refused), ("/nowhere", Unreachable)):
            settings = msgspec.structs.replace(stage.settings, market_url=base + path, read_s=0.3)
            cloud = await GkeCloud.open(settings)
            assert isinstance(await cloud.market(), outcome)
            await cloud.close()
