"""All readers of the cloud share the same reads and get what was read after their request."""

import asyncio
from collections.abc import Sequence

import pytest

from controlplane.capacity.observer import Observer
from controlplane.clouds import observations
from controlplane.clouds.interface import ClusterInfo, MarketPrice
from controlplane.clouds.observations import look_at
from controlplane.clouds.outcomes import Refused, Unreachable
from runtime import causes
from runtime.causes import Cause
from runtime.clock import SystemClock
from tests.capacity.builders import US
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import eventually


class SlowCloud(FakeCloud):
    """A cloud whose listings wait until a test allows them."""

    def __init__(self) -> None:
        super().__init__(US)
        self.nod = asyncio.Event()
        self.at_once = 0

    async def clusters(self) -> Sequence[ClusterInfo] | Unreachable | Refused:
        self.listings += 1
        self.at_once += 1
        assert self.at_once == 1, "one listing at a time"
        await self.nod.wait()
        self.at_once -= 1
        return tuple(self.infos.values())


async def test_all_who_ask_before_a_listing_begins_share_it_and_later_ones_share_the_next() -> None:
    cloud = SlowCloud()
    observer = Observer(cloud, SystemClock(), every_s=0.0)
    early = [asyncio.create_task(observer.clusters()) for _ in range(3)]
    await eventually(lambda: cloud.listings == 1, what="a listing that has begun")
    late = [asyncio.create_task(observer.clusters()) for _ in range(3)]
    cloud.nod.set()
    await asyncio.gather(*early, *late)
    assert cloud.listings == 2
    await observer.close()


async def test_a_listing_continues_for_the_others_when_one_stops_waiting() -> None:
    cloud = SlowCloud()
    observer = Observer(cloud, SystemClock(), every_s=0.0)
    first, second = (asyncio.create_task(observer.clusters()) for _ in range(2))
    await eventually(lambda: cloud.listings == 1, what="a listing that has begun")
    first.cancel()
    cloud.nod.set()
    assert await second == tuple(cloud.infos.values())
    assert (first.cancelled(), cloud.listings) == (True, 1)
    await observer.close()


async def test_a_shared_listing_has_not_the_cause_of_who_asked_first() -> None:
    found: list[Cause | None] = []
    observer = Observer(FakeCloud(US), SystemClock(), lambda _: found.append(causes.current()), every_s=0.0)
    with causes.caused_by(Cause("m1", "a halt")):
        await observer.clusters()
    assert found == [None]
    await observer.close()


async def test_looks_have_machines_and_prices_of_one_moment_for_all_followers() -> None:
    cloud = FakeCloud(US)
    cloud.prices = (MarketPrice("us-central1-a", "L4", 1, 2),)
    observer = Observer(cloud, SystemClock(), every_s=0.01)
    running = asyncio.create_task(observer.run(), name="observer")
    first = await observer.next(0)
    assert (first.machines, first.prices) == ((), cloud.prices)
    cloud.prices = (MarketPrice("us-central1-a", "L4", 3, 4),)
    seen = await asyncio.gather(*(observer.next(first.number + 1) for _ in range(3)))
    assert {look.number for look in seen} == {seen[0].number}
    assert await observer.market() == cloud.prices == seen[0].prices
    running.cancel()
    await observer.close()


async def test_an_answer_that_never_comes_leaves_a_look_without_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FakeCloud):
        async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
            await asyncio.sleep(3600.0)
            return ()

    monkeypatch.setattr(observations, "PRICES_S", 0.01)
    look = await look_at(Silent(US), 0.0)
    assert look.machines == ()
    assert isinstance(look.prices, Unreachable) and "0.01 s" in look.prices.detail
