"""What a fleet may have, in the words of the plan."""

from dataclasses import replace

from controlplane.allocator.choices import choice_of
from controlplane.capacity.offered import (
    Allowance,
    allowances_of,
    coarse,
    gpus_of,
    left_for,
    limits_of,
    priced,
    repriced,
)
from controlplane.catalog.memory import Estimate
from controlplane.catalog.shipped import shipped_catalog
from controlplane.clouds.interface import MarketPrice, Quota
from controlplane.planning.market import QuotaKey
from messages.ids import ClusterName
from tests.allocator.planned_stage import offer_in
from tests.allocator.stage import a_full_stage
from tests.planning.builders import IOWA_A, IOWA_B

HERE = offer_in(IOWA_A)
REGION = "us-central1"
SPOT_L4 = QuotaKey(REGION, "L4", True)


def test_only_what_the_catalog_has_with_as_many_gpus_can_be_planned_with() -> None:
    catalog = shipped_catalog()
    unknown = replace(HERE, machine_type="g9-standard-8")
    doubled = replace(offer_in(IOWA_B), accelerators_per_node=2)
    without = replace(HERE, accelerator=None, accelerators_per_node=0)
    [found] = priced(catalog, (HERE, unknown, doubled, without, replace(HERE, spot=False)))
    assert (found.zone, found.machine_type, found.accelerator, found.gpus) == (IOWA_A, "g2-standard-8", "L4", 1)


def test_two_clusters_with_the_same_machines_have_room_for_both() -> None:
    other = replace(HERE, cluster=ClusterName("other"), max_nodes=3)
    assert limits_of((HERE, other)) == {choice_of(HERE): HERE.max_nodes + 3}


def test_prices_of_the_moment_are_of_each_gpu_and_go_before_the_list() -> None:
    offers = priced(shipped_catalog(), (HERE, offer_in(IOWA_B)))
    now = repriced(offers, [MarketPrice(IOWA_A, "nvidia-l4", 700_000, 900_000)])
    assert [(offer.zone, offer.spot_micro_usd_per_hour) for offer in now] == [
        (IOWA_A, 700_000),
        (IOWA_B, offers[1].spot_micro_usd_per_hour),
    ]


def test_what_was_seen_is_told_with_two_digits_so_that_its_fading_is_no_news() -> None:
    seen = coarse(Estimate(0.58432, 14_398.0, 149.7, 3.0))
    assert seen == coarse(Estimate(0.58411, 14_396.0, 149.6, 2.9))
    assert (seen.availability, seen.mean_lifetime_s, seen.boot_s) == (0.58, 14_000.0, 150.0)


def test_quotas_are_those_of_spot_machines_or_of_machines_on_demand() -> None:
    told = [Quota("PREEMPTIBLE_NVIDIA_L4_GPUS", 8.0, 5.0), Quota("NVIDIA_L4_GPUS", 4.0, 0.0), Quota("CPUS", 9.0, 0.0)]
    found = allowances_of(REGION, told, {SPOT_L4: 2})
    assert found == {SPOT_L4: Allowance(8, others=3), QuotaKey(REGION, "L4", False): Allowance(4, others=0)}


def test_a_spot_quota_of_none_says_nothing_for_it_may_never_have_been_asked_for() -> None:
    told = [Quota("PREEMPTIBLE_NVIDIA_L4_GPUS", 0.0, 0.0), Quota("NVIDIA_L4_GPUS", 0.0, 0.0)]
    assert allowances_of(REGION, told, {}) == {QuotaKey(REGION, "L4", False): Allowance(0, others=0)}


def test_a_job_may_have_what_neither_strangers_nor_our_other_jobs_have() -> None:
    assert left_for({SPOT_L4: Allowance(8, others=3)}, {SPOT_L4: 2}) == {SPOT_L4: 3}
    assert left_for({SPOT_L4: Allowance(8, others=3)}, {SPOT_L4: 9}) == {SPOT_L4: 0}


def test_what_a_job_has_counts_by_region_and_kind() -> None:
    assert gpus_of(a_full_stage(HERE, wanted=3).allocator) == {SPOT_L4: 3}


def test_a_noticed_machine_is_ours_until_it_is_gone() -> None:
    stage = a_full_stage(HERE, wanted=3)
    stage.notices(f"{HERE.zone}-1", 25.0)
    assert gpus_of(stage.allocator) == {SPOT_L4: 3}
