"""Protection from node upgrades: new clusters, clusters taken over, and protections that end soon."""

from dataclasses import replace

from controlplane.capacity.upgrade_guard import UpgradeGuard
from controlplane.capacity.upgrade_policy import upgrades_allowed
from controlplane.clouds.interface import PROTECT_S, ClusterPlan, system_pool
from controlplane.clouds.outcomes import Refused
from messages.events import Event
from messages.ids import ClusterName
from tests.capacity.fake_cloud import FakeCloud

US = ClusterName("us")
DAY_S = 86_400.0


class HandClock:
    now_s = 1_800_000_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


class Guarding:
    def __init__(self, cloud: FakeCloud, *clusters: str) -> None:
        self.reported: list[Event] = []
        self.clock = HandClock()
        plans = [ClusterPlan(ClusterName(name), "here", system_pool("here", "e2", 1)) for name in clusters]
        self.guard = UpgradeGuard(cloud, plans, self.reported.append, self.clock)

    @property
    def now(self) -> float:
        return self.clock.now_s


async def test_an_adopted_cluster_without_protection_gets_one() -> None:
    cloud = FakeCloud("us")
    guarding = Guarding(cloud, "us")
    assert await guarding.guard.look()
    assert cloud.protections == [(US, guarding.now + PROTECT_S)]
    assert [event.kind for event in guarding.reported] == ["upgrades_excluded"]


async def test_a_protection_is_renewed_long_before_it_ends_and_not_sooner() -> None:
    cloud = FakeCloud("us")
    guarding = Guarding(cloud, "us")
    cloud.infos[US] = replace(cloud.infos[US], protected_until=guarding.now + PROTECT_S)
    for _ in range(4):
        guarding.clock.now_s += 29 * DAY_S
        assert await guarding.guard.look()
    assert cloud.protections == []
    guarding.clock.now_s += 10 * DAY_S
    assert await guarding.guard.look()
    assert cloud.protections == [(US, guarding.now + PROTECT_S)]


async def test_where_a_long_protection_is_refused_a_shorter_one_is_taken() -> None:
    cloud = FakeCloud("us")
    guarding = Guarding(cloud, "us")
    cloud.protection_refused = guarding.now + 50 * DAY_S
    assert await guarding.guard.look()
    assert cloud.infos[US].protected_until == guarding.now + 45 * DAY_S


async def test_people_are_told_once_where_no_protection_can_be_had() -> None:
    cloud = FakeCloud("us")
    guarding = Guarding(cloud, "us")
    cloud.protection_refused = guarding.now
    assert not await guarding.guard.look()
    assert not await guarding.guard.look()
    (event,) = guarding.reported
    assert (event.kind, event.text) == ("upgrades_allowed", upgrades_allowed(US, None))
    assert "too long" in event.why


async def test_a_cluster_that_is_not_there_yet_or_a_cloud_that_does_not_answer_is_looked_at_again() -> None:
    cloud = FakeCloud()
    guarding = Guarding(cloud, "us")
    assert not await guarding.guard.look()
    cloud.refusal = Refused("no project", "correct it")
    assert not await guarding.guard.look()
    assert not cloud.protections
