"""A fleet whose node account has no roles: nodes come and cannot pull. The job stops buying, says what to grant, and
trains once it is granted."""

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec
import pytest

from messages.api import EventLine, JobView
from messages.jobs import JobSpec, Launch, Workers
from runtime.children import free_port
from runtime.nats_server import NatsServer
from tests.cli.command import without_ours
from tests.conftest import eventual_answer
from tests.e2e.traces import a_mark, nothing_is_left
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway
from tradewind.demo import FLEET
from tradewind.local.fleet import KEY_FILE, fleet_at
from tradewind.local.parts import OwnProcess, master, simulator
from tradewind.local.simulator import Simulator

T = TypeVar("T")

SCRIPT = Path(__file__).with_name("budget_script.py")
JOB = "pulled"
IMAGE = "us-docker.pkg.dev/images/tradewind/tradewind:1"
GRANT = "gcloud projects add-iam-policy-binding images --member="
ROLE = "--role=roles/artifactregistry.reader"
PATIENCE_S = 150.0
GRACE_S = 10.0


@dataclass(frozen=True)
class Ground:
    folder: Path
    api: Api
    cloud: Simulator
    http: aiohttp.ClientSession

    @property
    def spec(self) -> JobSpec:
        return JobSpec(
            name=JOB,
            launch=Launch(
                script=str(SCRIPT),
                args=("20", str(self.folder / "checkpoints"), str(self.folder / "hold")),
                workdir=str(self.folder),
                python=sys.executable,
                env={"OMP_NUM_THREADS": "1"},
            ),
            workers=Workers(max=2, min=1),
        )

    async def machines(self) -> int:
        return len((await self.cloud.inventory_of(JOB)).nodes)

    async def view(self) -> JobView:
        return await self.api.job(JOB)

    async def events(self) -> list[EventLine]:
        return [event async for event in self.api.events()]

    async def set_roles(self, *, granted: bool) -> None:
        body = {"account": "default", "granted": granted}
        async with self.http.post(f"{self.cloud.url}/control/roles", json=body) as answer:
            assert answer.ok, await answer.text()

    async def clusters_heard(self) -> int:
        try:
            return (await self.api.health()).clusters
        except MasterAway:
            return 0


@asynccontextmanager
async def a_ground(folder: Path, mark: dict[str, str], roleless: str = "") -> AsyncIterator[Ground]:
    """One cluster of one region, whose image is in a registry of Google's."""
    environ = {**without_ours(os.environ), **mark}
    grpc_port, http_port, api_port = free_port(), free_port(), free_port()
    fleet = msgspec.yaml.decode(fleet_at(FLEET.read_text(), grpc_port, http_port, workers=2))
    fleet |= {"clusters": fleet["clusters"][:1], "offers": fleet["offers"][:1], "pods": {"image": IMAGE}}
    fleet_file = folder / "fleet.yaml"
    fleet_file.write_bytes(msgspec.yaml.encode(fleet))
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(NatsServer(folder / "bus"))
        http = await stack.enter_async_context(session())
        urls = f"http://127.0.0.1:{api_port}", f"http://127.0.0.1:{http_port}"
        ground = Ground(folder, Api(http, urls[0]), Simulator(http, urls[1]), http)
        flags = ("--write-credentials", str(folder / KEY_FILE), "--speed", "120")
        ports = ("--grpc-port", str(grpc_port), "--http-port", str(http_port))
        pods = stack.enter_context(tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True))
        places = ("--region-run-dir", pods, "--region", "us-central1")
        pulls = {
            "TRADEWIND_SIMULATOR_REGION_PULL_BACKOFF_MOST_S": "2",
            "TRADEWIND_SIMULATOR_ROLELESS_ACCOUNTS": roleless,
        }
        await _keep(stack, simulator((*flags, *ports, *places), {**environ, **pulls}, folder))
        await _until(ground.cloud.is_there, bool, "the simulator to be there")
        on_bus = {**environ, "TRADEWIND_NATS_URL": bus.url}
        await _keep(stack, master(("--api-port", str(api_port), "--fleet", str(fleet_file)), on_bus, folder))
        yield ground


@pytest.mark.slow
async def test_workers_that_cannot_pull_stop_the_buying_and_train_once_the_role_is_granted(tmp_path: Path) -> None:
    mark = a_mark()
    async with a_ground(tmp_path, mark) as ground:
        await _until(ground.clusters_heard, lambda heard: heard == 1, "the controller to be heard")
        await ground.set_roles(granted=False)
        await ground.api.submit(ground.spec)
        stuck = await _until(ground.view, lambda view: "cannot start in cluster" in view.why, "the reason")
        _tells_what_to_grant(stuck.why)
        assert await ground.machines() == 2
        reported = await _until(ground.events, lambda events: _of_kind(events, "starts_failed"), "an event")
        _tells_what_to_grant(_of_kind(reported, "starts_failed")[0].why)
        advice = await _until(ground.events, lambda events: _of_kind(events, "cluster_advice"), "advice")
        assert "roles/container.defaultNodeServiceAccount" in _of_kind(advice, "cluster_advice")[0].why

        await ground.set_roles(granted=True)
        await _succeeds(ground)
        assert _of_kind(await ground.events(), "starts_work")
    await nothing_is_left(mark)


@pytest.mark.slow
async def test_a_controller_that_cannot_pull_gives_the_machines_back_and_the_job_trains_after_the_grant(
    tmp_path: Path,
) -> None:
    mark = a_mark()
    async with a_ground(tmp_path, mark, roleless="default") as ground:
        await _until(ground.api.health, bool, "the master")
        await ground.api.submit(ground.spec)
        await _until(ground.machines, lambda count: count == 2, "machines")
        reported = await _until(ground.events, lambda events: _of_kind(events, "controller_failed"), "an event")
        _tells_what_to_grant(_of_kind(reported, "controller_failed")[0].why)
        await _until(ground.machines, lambda count: count == 0, "the machines to be given back")
        _tells_what_to_grant((await ground.view()).why)

        await ground.set_roles(granted=True)
        await _succeeds(ground)
    await nothing_is_left(mark)


async def _succeeds(ground: Ground) -> None:
    done = await _until(ground.view, lambda view: view.phase in ("succeeded", "failed", "stopped"), "the end")
    assert done.phase == "succeeded", done.why


def _tells_what_to_grant(why: str) -> None:
    assert f"nodes may not pull the image {IMAGE}" in why
    assert GRANT in why
    assert ROLE in why


def _of_kind(events: list[EventLine], kind: str) -> list[EventLine]:
    return [event for event in events if event.kind == kind]


async def _keep(stack: AsyncExitStack, part: OwnProcess) -> None:
    await part.start()
    stack.push_async_callback(part.stop, GRACE_S)


async def _until(ask: Callable[[], Awaitable[T]], holds: Callable[[T], object], what: str) -> T:
    async def ask_master() -> T | None:
        with suppress(MasterAway):
            return await ask()
        return None

    return await eventual_answer(ask_master, holds, what, PATIENCE_S)
