"""The fleet's offers as input of a plan."""

from dataclasses import replace

from controlplane.capacity.fleet_offers import coarse, limits_of, priced, repriced
from controlplane.catalog.memory import Estimate
from controlplane.catalog.shipped import shipped_catalog
from controlplane.clouds.interface import MarketPrice
from messages.ids import ClusterName
from tests.allocator.planned_stage import offer_in
from tests.planning.builders import IOWA_A, IOWA_B

HERE = offer_in(IOWA_A)


def test_only_what_the_catalog_has_with_as_many_gpus_can_be_planned_with() -> None:
    catalog = shipped_catalog()
    unknown = replace(HERE, machine_type="g9-standard-8")
    doubled = replace(offer_in(IOWA_B), accelerators_per_node=2)
    without = replace(HERE, accelerator=None, accelerators_per_node=0)
    [found] = priced(catalog, (HERE, unknown, doubled, without, replace(HERE, spot=False)))
    assert (found.zone, found.machine_type, found.accelerator, found.gpus) == (IOWA_A, "g2-standard-8", "L4", 1)


def test_two_clusters_with_the_same_machines_have_room_for_both() -> None:
    other = replace(HERE, cluster=ClusterName("other"), max_nodes=3)
    assert limits_of((HERE, other)) == {HERE.kind: HERE.max_nodes + 3}


def test_prices_of_the_moment_are_of_each_gpu_and_go_before_the_list() -> None:
    offers = priced(shipped_catalog(), (HERE, offer_in(IOWA_B)))
    now = repriced(offers, [MarketPrice(IOWA_A, "L4", 700_000, 900_000)])
    assert [(offer.zone, offer.spot_micro_usd_per_hour) for offer in now] == [
        (IOWA_A, 700_000),
        (IOWA_B, offers[1].spot_micro_usd_per_hour),
    ]


def test_what_was_seen_is_told_with_two_digits_so_that_its_fading_is_no_news() -> None:
    seen = coarse(Estimate(0.58432, 14_398.0, 149.7, 3.0))
    assert seen == coarse(Estimate(0.58411, 14_396.0, 149.6, 2.9))
    assert (seen.availability, seen.mean_lifetime_s, seen.boot_s) == (0.58, 14_000.0, 150.0)
