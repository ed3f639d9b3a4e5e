"""The markets that planned jobs get, and when they get them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from controlplane.allocator.state import Allocator, new_allocator
from controlplane.capacity.markets import Knowledge, Markets, list_prices_text
from controlplane.capacity.quota_watch import QuotaWatch
from controlplane.catalog.memory import Memory, StockedOut, learn
from controlplane.catalog.shipped import shipped_catalog, shipped_links
from controlplane.clouds.interface import PROJECT, MarketPrice, Quota, QuotaKey, system_pool
from controlplane.clouds.observations import Look, Looks
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.planning.market import Market, Quotas
from messages.events import FLEET, Event
from messages.ids import JobName
from runtime.clock import SystemClock
from tests.allocator.planned_stage import offer_in
from tests.allocator.stage import JOB, a_full_stage
from tests.capacity.fake_cloud import FakeCloud, LooksAtOnce, a_quota
from tests.conftest import eventually
from tests.planning.builders import ALL_GPUS, IOWA_A, IOWA_B, a_choice, some_criteria

OFFERS = (offer_in(IOWA_A), offer_in(IOWA_B), offer_in(IOWA_B, spot=False))
REGION = "us-central1"
SPOT_L4 = QuotaKey(REGION, "L4_SPOT")
DISKS = QuotaKey(REGION, "DISK_GB")


class Stage:
    def __init__(
        self, cloud: FakeCloud, unseen_s: float = 60.0, limited_s: float = 60.0, looks: Looks | None = None
    ) -> None:
        self.memory = Memory()
        self.allocators: dict[JobName, Allocator] = {}
        self.reported: list[Market] = []
        self.left: list[Quotas] = []
        """The quotas that an unplanned job got."""
        self.said: list[Event] = []
        systems = [system_pool(IOWA_A, "e2-standard-2", 1)]
        self.quotas = QuotaWatch(cloud, OFFERS, systems, lambda: self.allocators, again_s=0.01, limited_s=limited_s)
        self.markets = Markets(
            looks or LooksAtOnce(cloud),
            Knowledge(OFFERS, shipped_catalog, shipped_links(), lambda: self.memory),
            self.quotas,
            SystemClock(),
            self.said.append,
            unseen_s=unseen_s,
        )

    def hear(self, facts: Market | Quotas) -> None:
        if isinstance(facts, Market):
            self.reported.append(facts)
        else:
            self.left.append(facts)

    def usd_in(self, zone: str) -> int:
        return self.reported[-1].options[a_choice(zone)].micro_usd_per_hour


class SilentCloud(FakeCloud):
    async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
        await asyncio.sleep(3600.0)
        return ()


class GivenLooks:
    """Looks that a test hands out. A request for a look shows that the markets have processed the looks before it."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[Look] = asyncio.Queue()
        self.got = 0

    def give(self, prices: Sequence[MarketPrice] | Unreachable) -> None:
        self.given.put_nowait(Look(self.got + self.given.qsize() + 1, 0.0, (), prices))

    async def next(self, after: int) -> Look:
        self.got = after
        return await self.given.get()


class SlowQuotas(FakeCloud):
    def __init__(self) -> None:
        super().__init__()
        self.quota_by_scope[REGION] = (a_quota(REGION, "L4_SPOT", 8.0),)
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def quotas(self, scope: str) -> Sequence[Quota] | Unreachable | Refused:
        await self.may_answer.wait()
        return await super().quotas(scope)


async def looked_at(cloud: FakeCloud, times: int) -> None:
    """Wait until the cloud was read that many times and the results were sent."""
    before = cloud.looks
    await eventually(lambda: cloud.looks > before + times)


def listed_in(zone: str) -> int | None:
    found = shipped_catalog().find(zone, "g2-standard-8", "L4")
    return found.spot_micro_usd_per_hour if found is not None else None


@asynccontextmanager
async def a_stage(
    cloud: FakeCloud, unseen_s: float = 60.0, limited_s: float = 60.0, looks: Looks | None = None
) -> AsyncIterator[Stage]:
    stage = Stage(cloud, unseen_s, limited_s, looks)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(stage.markets.run())
        yield stage
        running.cancel()


async def test_a_job_is_told_what_the_fleet_has_of_what_it_allows() -> None:
    async with a_stage(FakeCloud()) as stage:
        stage.markets.follow(JOB, some_criteria(zones=(IOWA_B,)), stage.hear)
        await eventually(lambda: stage.reported)
    assert [(*choice, option.limit) for choice, option in stage.reported[0].options.items()] == [
        (IOWA_B, "g2-standard-8", "L4", 1, True, 8)
    ]


async def test_nothing_is_told_before_the_prices_of_the_moment_are_known() -> None:
    cloud = FakeCloud()
    cloud.prices = Unreachable("nobody answers")
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await looked_at(cloud, 3)
        assert stage.reported == []
        cloud.prices = (MarketPrice(IOWA_A, "L4", 123_456, 900_000),)
        await eventually(lambda: stage.reported)
    assert stage.usd_in(IOWA_A) == 123_456


async def test_list_prices_have_to_do_where_nobody_answers_until_somebody_does() -> None:
    cloud = FakeCloud()
    cloud.prices = Unreachable("nobody answers")
    began = SystemClock().wall_s()
    async with a_stage(cloud, unseen_s=0.1) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await eventually(lambda: stage.reported)
        assert stage.usd_in(IOWA_A) == listed_in(IOWA_A)
        cloud.prices = (MarketPrice(IOWA_A, "L4", 123_456, 900_000),)
        await eventually(lambda: stage.usd_in(IOWA_A) == 123_456)
    [listed, _, seen, _] = stage.said
    assert [event.scope for event in stage.said] == [FLEET, JOB, FLEET, JOB]
    assert (listed.kind, listed.why) == ("list_prices_used", "nobody answers")
    since = listed.fields["since"]
    assert isinstance(since, float)
    assert listed.text == list_prices_text(shipped_catalog().date, since)
    assert began - 0.01 <= since <= SystemClock().wall_s()
    assert (seen.kind, seen.fields) == ("market_prices_used", listed.fields)


async def test_a_job_that_comes_while_list_prices_hold_is_told_so_once() -> None:
    cloud, later = FakeCloud(), JobName("later")
    cloud.prices = Unreachable("nobody answers")
    async with a_stage(cloud, unseen_s=0.1) as stage:
        await eventually(lambda: stage.said)
        for most in (4, 3):
            stage.markets.follow(later, some_criteria(max_workers=most), stage.hear)
        [of_fleet, of_job] = stage.said
    assert (of_fleet.scope, of_job.scope) == (FLEET, later)
    assert (of_job.kind, of_job.text, of_job.why) == (of_fleet.kind, of_fleet.text, of_fleet.why)


async def test_once_prices_of_the_moment_were_read_the_last_ones_hold_while_nobody_answers() -> None:
    cloud = FakeCloud()
    cloud.prices = (MarketPrice(IOWA_A, "L4", 123_456, 900_000),)
    async with a_stage(cloud, unseen_s=0.05) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await eventually(lambda: stage.reported)
        cloud.prices = Unreachable("nobody answers")
        await looked_at(cloud, 6)
        assert stage.usd_in(IOWA_A) == 123_456
        assert stage.said == []


async def test_plans_follow_the_looks_of_the_ledger_also_after_many_that_failed() -> None:
    looks = GivenLooks()
    async with a_stage(FakeCloud(), looks=looks) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        for _ in range(50):
            looks.give(Unreachable("nobody answers"))
        await eventually(lambda: looks.got == 50)
        looks.give((MarketPrice(IOWA_A, "L4", 123_456, 900_000),))
        await eventually(lambda: looks.got == 51)
        assert stage.usd_in(IOWA_A) == 123_456


async def test_other_prices_are_told_and_the_same_ones_are_not() -> None:
    cloud = FakeCloud()
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await eventually(lambda: stage.reported)
        await looked_at(cloud, 3)
        assert len(stage.reported) == 1
        cloud.prices = (MarketPrice(IOWA_A, "L4", 123_456, 900_000),)
        await eventually(lambda: len(stage.reported) == 2)
    assert stage.usd_in(IOWA_A) == 123_456
    assert stage.usd_in(IOWA_B) > 200_000


async def test_prices_that_cannot_be_seen_any_more_stay_as_they_were() -> None:
    cloud = FakeCloud()
    cloud.prices = (MarketPrice(IOWA_A, "L4", 123_456, 900_000),)
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await eventually(lambda: stage.reported)
        cloud.prices = Unreachable("nobody answers")
        await looked_at(cloud, 3)
    assert (len(stage.reported), stage.usd_in(IOWA_A)) == (1, 123_456)


async def test_what_was_seen_of_a_zone_is_told() -> None:
    async with a_stage(FakeCloud()) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await eventually(lambda: stage.reported)
        for _ in range(5):
            stage.memory = learn(stage.memory, StockedOut(IOWA_A, "L4", SystemClock().wall_s()))
        await eventually(lambda: len(stage.reported) > 1)
        options = stage.reported[-1].options
    assert options[a_choice(IOWA_A)].availability < options[a_choice(IOWA_B)].availability


async def test_quotas_leave_out_what_other_jobs_and_system_pools_have() -> None:
    cloud = FakeCloud()
    cloud.quota_by_scope[REGION] = (a_quota(REGION, "L4_SPOT", 8.0), a_quota(REGION, "DISK_GB", 500.0))
    cloud.quota_by_scope[PROJECT] = (a_quota(PROJECT, "GPUS", 9.0, usage=2.0),)
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await eventually(lambda: stage.reported)
        assert stage.reported[-1].quotas.left == {SPOT_L4: 8, DISKS: 450, ALL_GPUS: 7}
        assert stage.reported[-1].quotas.needs[a_choice(IOWA_A)] == {SPOT_L4: 1, DISKS: 70, ALL_GPUS: 1}
        held = a_full_stage(offer_in(IOWA_A), wanted=3).allocator
        stage.allocators = {JobName("other"): held, JOB: held}
        await eventually(lambda: stage.reported[-1].quotas.left == {SPOT_L4: 5, DISKS: 240, ALL_GPUS: 4})
        assert stage.markets.market(some_criteria()).quotas.left[SPOT_L4] == 8


async def test_a_job_that_is_not_planned_is_told_what_quotas_leave_without_waiting_for_prices() -> None:
    cloud = SilentCloud()
    cloud.quota_by_scope[REGION] = (a_quota(REGION, "DISK_GB", 200.0),)
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, None, stage.hear)
        await eventually(lambda: stage.left)
    assert (stage.left[-1].left, stage.left[-1].page) == ({DISKS: 150}, cloud.quotas_page)


async def test_quotas_that_cannot_be_read_limit_nothing_and_are_read_again_after_a_refusal() -> None:
    cloud = FakeCloud()
    cloud.quota_by_scope[REGION] = Unreachable("nobody answers")
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await eventually(lambda: stage.reported)
        await looked_at(cloud, 3)
        assert (stage.reported[-1].quotas.left, sorted(cloud.quotas_asked)) == ({}, [PROJECT, REGION])
        cloud.quota_by_scope[REGION] = (a_quota(REGION, "L4_SPOT", 2.0),)
        stage.quotas.refused()
        await eventually(lambda: stage.reported[-1].quotas.left == {SPOT_L4: 2})


async def test_quotas_are_read_again_when_a_job_comes_and_when_a_plan_is_asked_for() -> None:
    cloud = FakeCloud()
    cloud.quota_by_scope[REGION] = (a_quota(REGION, "L4_SPOT", 1.0),)
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, None, stage.hear)
        await eventually(lambda: stage.left)
        cloud.quota_by_scope[REGION] = (a_quota(REGION, "L4_SPOT", 4.0),)
        stage.markets.follow(JobName("later"), None, lambda _: None)
        await eventually(lambda: stage.left[-1].left == {SPOT_L4: 4})
        cloud.quota_by_scope[REGION] = (a_quota(REGION, "L4_SPOT", 8.0),)
        await stage.quotas.refresh()
        await eventually(lambda: stage.left[-1].left == {SPOT_L4: 8})


async def test_quotas_are_read_more_often_while_one_keeps_a_job_from_more_nodes() -> None:
    cloud = FakeCloud()
    cloud.quota_by_scope[REGION] = (a_quota(REGION, "L4_SPOT", 0.0),)
    async with a_stage(cloud, limited_s=0.01) as stage:
        stage.markets.follow(JOB, None, stage.hear)
        await eventually(lambda: stage.left)
        needs = stage.left[-1].needs
        waiting = new_allocator(JOB, OFFERS, wanted=2, at_s=0.0)
        stage.allocators = {JOB: replace(waiting, quotas=Quotas({SPOT_L4: 0}, needs))}
        cloud.quota_by_scope[REGION] = (a_quota(REGION, "L4_SPOT", 2.0),)
        await eventually(lambda: stage.left[-1].left == {SPOT_L4: 2})


async def test_after_a_refusal_nothing_older_is_told_and_what_is_read_is_told_though_it_is_the_same() -> None:
    cloud = SlowQuotas()
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, None, stage.hear)
        await eventually(lambda: stage.left)
        cloud.may_answer.clear()
        stage.quotas.refused()
        stage.allocators = {JobName("other"): a_full_stage(offer_in(IOWA_A), wanted=3).allocator}
        await looked_at(cloud, 3)
        assert len(stage.left) == 1
        stage.allocators = {}
        cloud.may_answer.set()
        await eventually(lambda: len(stage.left) == 2)
    assert stage.left[0] == stage.left[1]


async def test_a_job_that_comes_later_is_told_at_once_and_one_that_went_no_more() -> None:
    cloud = FakeCloud()
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await eventually(lambda: stage.reported)
        later: list[Market | Quotas] = []
        stage.markets.follow(JobName("later"), some_criteria(on_demand=1.0), later.append)
        assert isinstance(later[0], Market)
        assert [choice.spot for choice in later[0].options] == [False]
        stage.markets.unfollow(JobName("later"))
        cloud.prices = (MarketPrice(IOWA_B, "L4", 123_456, 900_000),)
        await eventually(lambda: len(stage.reported) == 2)
    assert len(later) == 1


async def test_people_are_told_all_offers_at_the_prices_of_the_moment() -> None:
    cloud = FakeCloud()
    cloud.prices = (MarketPrice(IOWA_A, "L4", 123_456, 900_000),)
    async with a_stage(cloud) as stage:
        stage.markets.follow(JOB, some_criteria(), stage.hear)
        await eventually(lambda: stage.reported)
        catalog = stage.markets.catalog()
    found = catalog.find(IOWA_A, "g2-standard-8", "L4")
    assert found is not None and found.spot_micro_usd_per_hour == 123_456
    assert len(catalog.offers) == len(shipped_catalog().offers)
