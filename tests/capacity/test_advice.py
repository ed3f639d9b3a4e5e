"""A cloud's advice about a cluster is announced once."""

from dataclasses import replace

from controlplane.capacity.observer import Advice, Observer
from messages.events import Event
from runtime.clock import SystemClock
from tests.capacity.builders import US
from tests.capacity.fake_cloud import FakeCloud


async def test_advice_of_a_listing_is_told_once_and_again_when_it_comes_back() -> None:
    reported: list[Event] = []
    inner = FakeCloud(US)
    cloud = Observer(inner, SystemClock(), Advice(reported.append).see, every_s=0.0)
    plain = inner.infos[US]
    for advice in ("", "grant a role", "grant a role", "", "grant a role"):
        inner.infos[US] = replace(plain, advice=advice)
        await cloud.clusters()
    assert [(event.kind, event.why) for event in reported] == [("cluster_advice", "grant a role")] * 2
