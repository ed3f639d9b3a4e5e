"""Profiles, groups and links of round numbers: a byte in a nanosecond is 8 Gbit/s."""

from typing import Any

from controlplane.catalog.links import Link, Links
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.places import Distance
from controlplane.throughput.estimate import Estimate, estimate
from controlplane.throughput.placement import Group, placement_of
from controlplane.throughput.profile import Compute, Profile

FAST = 8e9
SLOW = 8e8


def a_profile(**changes: Any) -> Profile:
    given: dict[str, Any] = {
        "compute": {"L4": Compute(0.01)},
        "gradient_bytes": 10**9,
        "global_batch": 128,
        **changes,
    }
    return Profile(**given)


def a_group(zone: str = "us-central1-a", machines: int = 1, **changes: Any) -> Group:
    given: dict[str, Any] = {
        "zone": zone,
        "accelerator": "L4",
        "machines": machines,
        "gpus_per_machine": 1,
        "micro_usd_per_machine_hour": MicroDollars(1_000_000),
        "network_bit_per_s": FAST,
        **changes,
    }
    return Group(**given)


def some_links(**changes: Any) -> Links:
    speeds = {Distance.SAME_ZONE: 1e12, Distance.SAME_REGION: 1e12}
    prices = {Distance.SAME_ZONE: 0, Distance.SAME_REGION: 10_000, Distance.SAME_CONTINENT: 20_000}
    ways = {far: Link(speeds.get(far, SLOW), MicroDollars(prices.get(far, 50_000))) for far in Distance}
    given: dict[str, Any] = {"by_distance": ways, "egress_between": {}, **changes}
    return Links(**given)


def estimated(profile: Profile, *groups: Group, links: Links | None = None) -> Estimate:
    found = estimate(profile, placement_of(groups), links or some_links())
    assert isinstance(found, Estimate), found
    return found
