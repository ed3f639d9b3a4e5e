import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from controlplane.stores import protocol as store_protocol
from controlplane.stores.protocol import Failed, Met, Report, Start, Started, Waiting, Warm, Watch
from controlplane.stores.server import ports_after
from controlplane.stores.servers import ENDED, StorePlace, StoreServers, StoreUnavailable
from messages.ids import Generation, JobName
from messages.worlds import StoreAddress
from runtime.children import free_port
from tests.conftest import PATIENCE_S, eventual_answer, eventually
from tests.stores.conftest import RunningStores

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = JobName("job")
OTHER = JobName("other")
RANK_SCRIPT = Path(__file__).with_name("ranks.py")


class RankProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = process.stdout

    def come(self, address: StoreAddress, rank: int, world_size: int) -> None:
        self._stdin.write(f"{rank} {world_size} {address.port}\n".encode())

    async def sum(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return (await self._stdout.readline()).decode().strip()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ranks() -> AsyncIterator[list[RankProcess]]:
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            str(RANK_SCRIPT),
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(3)
    ]
    try:
        yield [RankProcess(process) for process in started]
    finally:
        for process in started:
            process.kill()
            await process.communicate()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_ranks_of_every_generation_meet_at_a_store_of_their_own(
    stores: RunningStores, ranks: list[RankProcess]
) -> None:
    seen = set()
    for generation in (1, 2, 3):
        address = await stores.servers.start(JOB, Generation(generation))
        assert address not in seen
        seen.add(address)
        for number, rank in enumerate(ranks[:2]):
            rank.come(address, number, world_size=2)
        assert [await rank.sum() for rank in ranks[:2]] == ["3", "3"]
    assert stores.lost == []


async def test_ranks_that_wait_for_a_peer_are_reported_again_and_again(
    stores: RunningStores, ranks: list[RankProcess]
) -> None:
    address = await stores.servers.start(JOB, Generation(4))
    stores.servers.watch(JOB, Generation(4), world_size=3, meet_s=0.3)
    ranks[0].come(address, 0, world_size=3)
    ranks[2].come(address, 2, world_size=3)
    both_wait = (JOB, Waiting(4, (0, 2), (1,)))
    await eventually(lambda: stores.ranks.count(both_wait) >= 2, what="two reports of ranks that wait")
    ranks[1].come(address, 1, world_size=3)
    assert [await rank.sum() for rank in ranks] == ["6", "6", "6"]
    await eventually(lambda: stores.ranks.count((JOB, Met(4))) == 1, what="the report that all have met")


async def test_a_process_that_dies_is_told_and_the_next_store_comes_from_the_spare(stores: RunningStores) -> None:
    await stores.servers.start(OTHER, Generation(1))
    [child] = [child for child in stores.servers.processes() if child.job == OTHER]
    os.kill(child.pid, signal.SIGKILL)
    await eventually(lambda: stores.lost == [OTHER], what="the loss to be told")
    address = await stores.servers.start(OTHER, Generation(2))
    assert address.port > 0
    [next_child] = [child for child in stores.servers.processes() if child.job == OTHER]
    assert next_child.pid != child.pid


async def test_stopping_a_jobs_stores_ends_its_process_and_tells_no_loss(stores: RunningStores) -> None:
    await stores.servers.start(OTHER, Generation(3))
    [child] = [child for child in stores.servers.processes() if child.job == OTHER]
    lost_before = list(stores.lost)
    stores.servers.stop(OTHER)
    await eventually(lambda: not is_alive(child.pid), what="the process to end")
    assert stores.lost == lost_before


async def test_a_full_range_is_a_failure_with_its_reason_and_no_process_is_left_at_the_end() -> None:
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        servers = StoreServers(a_single_port(port), lambda job: None, lambda job, reported: None)
        task = asyncio.create_task(servers.run(), name="stores")
        with pytest.raises(StoreUnavailable, match=rf" 127\.0\.0\.1: .*{os.strerror(errno.EADDRINUSE)}"):
            await servers.start(JOB, Generation(1))
        pids = [child.pid for child in servers.processes()]
        task.cancel()
        await asyncio.wait({task})
    assert pids
    assert not any(is_alive(pid) for pid in pids)


async def test_a_command_that_cannot_run_is_tried_again_and_the_failure_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controlplane.stores.servers.WARM_TIMEOUT_S", 1.0)
    servers = StoreServers(
        a_single_port(free_port()), lambda job: None, lambda job, reported: None, (sys.executable, "-c", "pass")
    )
    task = asyncio.create_task(servers.run(), name="stores")
    with pytest.raises(StoreUnavailable, match=r" 1 s$"):
        await servers.start(JOB, Generation(1))
    task.cancel()
    await asyncio.wait({task})


DIES_SLOWLY = """
import os, sys, time
print('{"type": "warm"}', flush=True)
sys.stdin.readline()
os.close(1)
time.sleep(600)
"""
"""A process that closes its output on `Start` but does not exit yet."""


async def test_the_one_that_asks_a_process_that_is_just_ending_is_told_so_at_once() -> None:
    servers = StoreServers(
        a_single_port(free_port()), lambda job: None, lambda job, reported: None, (sys.executable, "-c", DIES_SLOWLY)
    )
    task = asyncio.create_task(servers.run(), name="stores")
    for generation in (1, 2):
        with pytest.raises(StoreUnavailable, match=ENDED):
            await servers.start(JOB, Generation(generation))
    task.cancel()
    await asyncio.wait({task})


class StoreProcess:
    """The child process, driven line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.commands = process.stdin
        self._reports = process.stdout

    def tell(self, command: store_protocol.Command) -> None:
        self.commands.write(msgspec.json.encode(command) + b"\n")

    async def report(self) -> Report:
        async with asyncio.timeout(PATIENCE_S):
            line = await self._reports.readline()
        report: Report = msgspec.json.decode(line, type=Report)
        return report


@contextlib.asynccontextmanager
async def store_process() -> AsyncIterator[StoreProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "controlplane.stores.server",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield StoreProcess(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_the_process_serves_drops_old_stores_and_ends_with_its_stdin() -> None:
    port = free_port()
    async with store_process() as child:
        assert await child.report() == Warm()
        child.tell(Start(1, "127.0.0.1", port, port + 20))
        first = await child.report()
        assert isinstance(first, Started)
        child.tell(Watch(1, world_size=2, meet_s=0.05))
        child.tell(Start(2, "127.0.0.1", port, port + 20))
        second = await child.report()
        assert isinstance(second, Started)
        assert second.port != first.port
        await eventual_answer(lambda: accepts(first.port), lambda open_: not open_, "the first store to be dropped")
        assert await accepts(second.port)
        child.tell(Start(3, "203.0.113.1", port, port))
        failed = await child.report()
        assert isinstance(failed, Failed)
        assert "203.0.113.1" in failed.why
        child.commands.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await child.process.wait() == 0


async def test_a_port_comes_back_as_late_as_possible() -> None:
    assert ports_after(12, 10, 13) == [13, 10, 11, 12]
    assert ports_after(13, 10, 13) == [10, 11, 12, 13]
    assert sorted(ports_after(None, 10, 13)) == [10, 11, 12, 13]
    assert ports_after(None, 10, 9) == []


def a_single_port(port: int) -> StorePlace:
    return StorePlace("127.0.0.1", "127.0.0.1", port, port)
