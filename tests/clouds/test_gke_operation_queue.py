"""One operation at a time on a pool, a few in a cluster, and a limit for each wait."""

import asyncio

import pytest

from controlplane.clouds.gke.operation_queue import NoTurn, Turns
from messages.ids import ClusterName
from tests.conftest import eventually

C = ClusterName("c")


class Worker:
    """Take a turn, report it, and hold it until the test releases it."""

    def __init__(self, turns: Turns, pool: str | None, cluster: ClusterName = C) -> None:
        self.has_it = False
        self.enough = asyncio.Event()
        self.task = asyncio.create_task(self._work(turns, pool, cluster))

    async def _work(self, turns: Turns, pool: str | None, cluster: ClusterName) -> None:
        async with turns.turn(cluster, pool, f"work on {pool}"):
            self.has_it = True
            await self.enough.wait()

    async def finish(self) -> None:
        self.enough.set()
        await self.task


async def test_a_pool_is_worked_on_by_one_and_other_pools_meanwhile() -> None:
    turns = Turns(at_once=4, wait_s=20)
    first, second, other = Worker(turns, "a"), Worker(turns, "a"), Worker(turns, "b")
    await eventually(lambda: first.has_it and other.has_it)
    assert not second.has_it
    await first.finish()
    await eventually(lambda: second.has_it)
    await second.finish()
    await other.finish()


async def test_a_cluster_takes_a_few_at_once_and_other_clusters_as_many() -> None:
    turns = Turns(at_once=2, wait_s=20)
    workers = [Worker(turns, name) for name in "abc"]
    elsewhere = Worker(turns, "a", ClusterName("elsewhere"))
    await eventually(lambda: elsewhere.has_it and sum(worker.has_it for worker in workers) == 2)
    for worker in [*workers, elsewhere]:
        await worker.finish()


async def test_who_waits_for_a_pool_takes_no_place_from_others() -> None:
    turns = Turns(at_once=2, wait_s=20)
    first, waiting = Worker(turns, "a"), Worker(turns, "a")
    await eventually(lambda: first.has_it)
    other = Worker(turns, "b")
    await eventually(lambda: other.has_it)
    for worker in (first, waiting, other):
        await worker.finish()


async def test_who_waits_too_long_is_told_what_is_in_the_way() -> None:
    turns = Turns(at_once=1, wait_s=0.05)
    first = Worker(turns, "a")
    await eventually(lambda: first.has_it)
    for pool in ("a", "b"):
        with pytest.raises(NoTurn, match="work on a"):
            async with turns.turn(C, pool, f"more of {pool}"):
                pytest.fail("it was not its turn")
    await first.finish()
    async with turns.turn(C, "b", "now"):
        pass


async def test_a_waiter_that_is_cancelled_leaves_the_line() -> None:
    turns = Turns(at_once=1, wait_s=20)
    first, second, third = (Worker(turns, "a") for _ in range(3))
    await eventually(lambda: first.has_it)
    second.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second.task
    await first.finish()
    await eventually(lambda: third.has_it)
    await third.finish()


async def test_nothing_is_remembered_of_pools_that_are_done() -> None:
    turns = Turns(at_once=2, wait_s=20)
    for number in range(50):
        async with turns.turn(C, f"pool-{number}", "work"):
            pass
    assert not turns._lines
