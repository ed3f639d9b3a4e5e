"""A job with little money on a simulated cloud, in two regions: what it sends between them counts too.

It pauses in time, leaves no machine, and with more it goes on.
"""

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from controlplane.budget.account import RELEASE_S
from messages.api import JobView
from messages.criteria import Capacity
from messages.jobs import JobSpec, Launch, Timeouts, Workers
from runtime.children import free_port
from runtime.nats_server import NatsServer
from simulator.market.markets import ACCELERATORS
from tests.cli.command import tradewind_process as tradewind
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
JOB = "frugal"
WORKERS = 2
SPEED = 120
SPENDS_S = 3.0
"""So long its machines may go on, at the spot price, before nothing is left but what is kept."""
STEPS = 300
EVERY = 5
"""Steps between two checkpoints of the script."""
ZONES = ("us-central1-a", "europe-west4-a")
"""With one machine each: its workers are in two regions."""
GRADIENT_BYTES = 4 * (8 * 2 + 2)
"""Of the script's model, which its job file does not tell."""
ENDS = ("succeeded", "failed", "stopped")
PATIENCE_S = 120.0
GRACE_S = 10.0


@dataclass(frozen=True)
class Ground:
    folder: Path
    api: Api
    cloud: Simulator

    @property
    def environ(self) -> dict[str, str]:
        return {"TRADEWIND_API_URL": self.api.url}

    @property
    def hold(self) -> Path:
        return self.folder / "hold"

    @property
    def spec(self) -> JobSpec:
        checkpoints = self.folder / "checkpoints"
        return JobSpec(
            name=JOB,
            launch=Launch(
                script=str(SCRIPT),
                args=(str(STEPS), str(checkpoints), str(self.hold)),
                workdir=str(self.folder),
                python=sys.executable,
                env={"OMP_NUM_THREADS": "1"},
            ),
            workers=Workers(max=WORKERS, min=WORKERS),
            timeouts=Timeouts(park_s=3.0),
            capacity=Capacity(zones=ZONES),
        )

    async def machines(self) -> int:
        return len((await self.cloud.inventory_of(JOB)).nodes)

    async def pools(self) -> int:
        return len((await self.cloud.inventory_of(JOB)).pools)

    async def bill(self) -> float:
        return (await self.cloud.bill_of(JOB)).micro_usd / 1_000_000

    async def view(self) -> JobView:
        return await self.api.job(JOB)


@asynccontextmanager
async def a_ground(folder: Path, mark: dict[str, str]) -> AsyncIterator[Ground]:
    environ = {**without_ours(os.environ), **mark}
    grpc_port, http_port, api_port = free_port(), free_port(), free_port()
    fleet = folder / "fleet.yaml"
    fleet.write_bytes(fleet_at(FLEET.read_text(), grpc_port, http_port, workers=1))
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(NatsServer(folder / "bus"))
        opened = await stack.enter_async_context(session())
        ground = Ground(
            folder, Api(opened, f"http://127.0.0.1:{api_port}"), Simulator(opened, f"http://127.0.0.1:{http_port}")
        )
        flags = ("--write-credentials", str(folder / KEY_FILE), "--speed", str(SPEED))
        ports = ("--grpc-port", str(grpc_port), "--http-port", str(http_port))
        pods = stack.enter_context(tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True))
        places = ("--region-run-dir", pods, "--region", "us-central1", "--region", "europe-west4")
        await _keep(stack, simulator((*flags, *ports, *places), environ, folder))
        await _until(ground.cloud.is_there, bool, "the simulator to be there")
        on_bus = {**environ, "TRADEWIND_NATS_URL": bus.url}
        await _keep(stack, master(("--api-port", str(api_port), "--fleet", str(fleet)), on_bus, folder))
        await _until(lambda: _clusters(ground.api), lambda heard: heard == 2, "two clusters")
        yield ground


async def test_a_job_pauses_within_its_budget_leaves_no_machine_and_continues_with_more(tmp_path: Path) -> None:
    mark = a_mark()
    async with a_ground(tmp_path, mark) as ground:
        ground.hold.touch()
        await ground.api.submit(ground.spec)
        await _until(ground.view, lambda view: (view.step or 0) > 2 * EVERY, "some steps")
        await _until(ground.view, _is_measured, "enough steps to know what one needs")
        egress = (await ground.api.cost(JOB)).egress
        assert {(line.sender, line.receiver) for line in egress} == {ZONES, ZONES[::-1]}
        assert all(line.sent_bytes > 0 and line.sent_bytes % GRADIENT_BYTES == 0 for line in egress), egress
        usd = round(await ground.bill() + _enough_for(SPENDS_S), 2)
        given = await tradewind("budget", JOB, f"{usd}", environ=ground.environ)
        assert given.says(JOB, f"{usd:.4f} USD"), given.err

        paused = await _until(ground.view, lambda view: view.paused and view.phase == "waiting", "a pause")
        assert "budget reached" in paused.why
        await _until(ground.machines, lambda count: count == 0, "all machines to go")
        assert 0 < await ground.bill() < usd
        assert (await tradewind("status", JOB, environ=ground.environ)).says(JOB, "paused")

        ground.hold.unlink()
        raised = await tradewind("budget", JOB, f"{usd + 100}", environ=ground.environ)
        assert raised.code == 0, raised.err
        done = await _until(ground.view, lambda view: view.phase in ENDS, "the job to end")
        assert (done.phase, done.failures, done.losses) == ("succeeded", 0, 0), done.why
        await _until(ground.pools, lambda count: count == 0, "all pools to go")
        assert await ground.machines() == 0
        assert await ground.bill() < usd + 100
        reported = [event.kind async for event in ground.api.events(JOB)]
        assert [kind for kind in reported if kind in ("job_paused", "job_continued")] == ["job_paused", "job_continued"]
        lines = [line.line async for line in ground.api.logs(JOB, rank=0)]
        assert lines.count("step 0 world 2") == 1, "it went on from a checkpoint"
        assert lines[-1].startswith(f"{STEPS} steps, "), lines[-1]
    await nothing_is_left(mark)


def _is_measured(view: JobView) -> bool:
    found = view.measured
    return found is not None and found.gradient_bytes == GRADIENT_BYTES and found.compute.keys() == {"L4"}


def _enough_for(seconds: float) -> float:
    """What is kept, and so much time of the machines at the spot price; the cloud's hours pass quickly."""
    l4 = ACCELERATORS["nvidia-l4"]
    return WORKERS * SPEED * (l4.on_demand * RELEASE_S + l4.spot * seconds) / 3600 / 1_000_000


async def _clusters(api: Api) -> int:
    try:
        return (await api.health()).clusters
    except MasterAway:
        return 0


async def _keep(stack: AsyncExitStack, part: OwnProcess) -> None:
    await part.start()
    stack.push_async_callback(part.stop, GRACE_S)


async def _until(ask: Callable[[], Awaitable[T]], holds: Callable[[T], object], what: str) -> T:
    return await eventual_answer(ask, holds, what, PATIENCE_S)
