"""What a killed master has half created, the next master takes over or removes."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from messages.labels import FLEET_LABEL, JOB_LABEL
from runtime.nats_server import NatsServer
from tests.clouds.contract import found, until
from tests.clouds.simulated import PROJECT, ZONE, SimulatedStage
from tests.master.process import Api, MasterProcess, a_spec, running_master

JOB = "a-job"
NONE: list[int] = []
SLOW = {"cluster_s": 1.5, "operation_s": 1.5, "boot_s": 0.5}
QUICK_QUESTIONS = {"TRADEWIND_GKE_POLL_FIRST_S": "0.05", "TRADEWIND_GKE_POLL_MOST_S": "0.1"}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[SimulatedStage]:
    async with SimulatedStage.open(tmp_path, **SLOW) as stage:
        yield stage


def a_fleet(stage: SimulatedStage, folder: Path) -> Path:
    offer = {"cluster": "a-cluster", "zone": ZONE, "machine_type": "g2-standard-8", "accelerator": "nvidia-l4"}
    fleet = {
        "name": "a-fleet",
        "cloud": {
            "kind": "gke",
            "project": PROJECT,
            "credentials": stage.settings.credentials_file,
            "endpoints": {
                "gke": stage.settings.endpoint,
                "insecure": True,
                "compute": stage.settings.compute_url,
            },
        },
        "clusters": [{"name": "a-cluster", "location": ZONE, "zones": [ZONE]}],
        "system_pool": {"machine_type": "e2-standard-4"},
        "offers": [{**offer, "max_nodes": 4}],
        "pods": {"image": "tradewind:local", "pull_policy": "Never"},
    }
    path = folder / "fleet.yaml"
    path.write_bytes(msgspec.yaml.encode(fleet))
    return path


@asynccontextmanager
async def a_master(stage: SimulatedStage, bus: NatsServer, folder: Path) -> AsyncIterator[tuple[MasterProcess, Api]]:
    fleet = a_fleet(stage, folder)
    async with running_master(bus.url, folder, TRADEWIND_FLEET=str(fleet), **QUICK_QUESTIONS) as started:
        yield started


def asked(stage: SimulatedStage, method: str) -> Callable[[], Awaitable[bool]]:
    async def is_asked() -> bool:
        return "OK" in await stage.calls(method)

    return is_asked


async def pools_of_the_job(stage: SimulatedStage) -> list[int]:
    pools = [pool for cluster in found(await stage.cloud.clusters()) for pool in cluster.pools]
    return [pool.size for pool in pools if pool.labels.get(JOB_LABEL) == JOB]


async def test_a_cluster_and_a_pool_that_were_half_made_are_adopted_and_go_with_the_job(
    stage: SimulatedStage, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_master(stage, nats_server, tmp_path) as (first, api):
        await api.submit(a_spec(JOB, 2))
        await until(asked(stage, "CreateCluster"), True)
        first.signal(signal.SIGKILL)
        await first.wait()
    async with a_master(stage, nats_server, tmp_path) as (second, _):
        await until(asked(stage, "CreateNodePool"), True)
        second.signal(signal.SIGKILL)
        await second.wait()
    async with a_master(stage, nats_server, tmp_path) as (_, api):
        await until(lambda: pools_of_the_job(stage), [2])
        status, _ = await api.ask("POST", f"/v1/jobs/{JOB}/stop")
        assert status == 200
        await until(lambda: pools_of_the_job(stage), NONE)
    (cluster,) = found(await stage.cloud.clusters())
    assert cluster.labels[FLEET_LABEL] == "a-fleet"
    assert (await stage.calls("CreateCluster")).count("OK") == 1
    assert (await stage.calls("CreateNodePool")).count("OK") == 1


async def test_a_half_made_pool_of_a_job_that_is_stopped_after_the_crash_is_removed(
    stage: SimulatedStage, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_master(stage, nats_server, tmp_path) as (first, api):
        await api.submit(a_spec(JOB, 2))
        await until(asked(stage, "CreateNodePool"), True)
        first.signal(signal.SIGKILL)
        await first.wait()
    async with a_master(stage, nats_server, tmp_path) as (_, api):
        await api.ask("POST", f"/v1/jobs/{JOB}/stop")
        await until(lambda: pools_of_the_job(stage), NONE)
    assert (await stage.calls("CreateNodePool")).count("OK") == 1


async def test_a_master_that_cannot_have_a_cluster_says_why_and_what_to_do(
    stage: SimulatedStage, nats_server: NatsServer, tmp_path: Path
) -> None:
    await stage.order("api", {"api": "gke", "disabled": True})
    async with a_master(stage, nats_server, tmp_path) as (master, _):
        await until(lambda: _says(master, "run `gcloud services enable container.googleapis.com"), True)
    assert "Traceback" not in master.said()


async def _says(master: MasterProcess, text: str) -> bool:
    return text in master.said()
