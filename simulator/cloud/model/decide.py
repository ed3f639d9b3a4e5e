"""The core: learns from the event, then reconciles everything with what is known.

Time alone changes much here: instances boot, notices end, groups retry, operations end. So every decision names the
time of the next one.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from runtime.decision import Decision
from simulator.cloud.model import bill, groups, hosting, operations, spot, upkeep
from simulator.cloud.model.admit import admit
from simulator.cloud.model.effects import Answer, Effect
from simulator.cloud.model.events import (
    Asked,
    Event,
    MarketMoved,
    RegionFailed,
    RegionMissed,
    RegionObeyed,
    RegionSeen,
    Tick,
)
from simulator.cloud.model.state import Cloud, Offer, Region


def decide(cloud: Cloud, event: Event) -> Decision[Cloud, Effect]:
    cloud, answers = _learn(cloud, event)
    return _reconcile(cloud, event.at_s, answers)


def _learn(cloud: Cloud, event: Event) -> tuple[Cloud, tuple[Answer, ...]]:
    match event:
        case Asked():
            cloud, outcome = admit(cloud, event.request, event.at_s)
            return cloud, (Answer(event.number, outcome),)
        case MarketMoved():
            return _market_moved(cloud, event), ()
        case RegionSeen():
            return hosting.seen(cloud, event), ()
        case RegionMissed():
            known = cloud.regions.get(event.region, Region(event.region))
            missed = replace(known, reachable=False)
            return replace(cloud, regions={**cloud.regions, event.region: missed}), ()
        case RegionObeyed():
            return hosting.obeyed(cloud, event), ()
        case RegionFailed():
            return hosting.failed(cloud, event), ()
        case Tick():
            return cloud, ()
        case _:
            assert_never(event)


def _market_moved(cloud: Cloud, event: MarketMoved) -> Cloud:
    change = event.change
    known = cloud.offers.get(change.market, Offer())
    offer = replace(
        known,
        capacity=known.capacity if change.capacity is None else change.capacity,
        price=known.price if change.price is None else change.price,
        notice_s=change.notice_s,
    )
    return replace(cloud, offers={**cloud.offers, change.market: offer})


def _reconcile(cloud: Cloud, at_s: float, answers: tuple[Answer, ...]) -> Decision[Cloud, Effect]:
    cloud = spot.take_back(cloud, at_s)
    cloud = upkeep.proceed(cloud, at_s)
    cloud = groups.reach_targets(cloud, at_s)
    cloud, reported = hosting.tell_regions(cloud, at_s)
    cloud = operations.finish(cloud, at_s)
    cloud = bill.meter(cloud, at_s)
    later = min((time_s for time_s in _wake_times(cloud) if time_s > at_s), default=math.inf)
    return Decision(cloud, (*answers, *reported), wake_at_s=later if later < math.inf else None)


def _wake_times(cloud: Cloud) -> Iterator[float]:
    yield from (cluster.up_s for cluster in cloud.clusters.values())
    for node in cloud.nodes.values():
        yield node.request_at_s
        if node.instance is not None:
            yield from (node.instance.ready_s, node.instance.expires_s, node.instance.ends_s)
    yield from hosting.wake_times(cloud)
    yield from operations.wake_times(cloud)
    yield from upkeep.wake_times(cloud)
