"""The shortage of a job that waits for machines."""

from dataclasses import replace

from controlplane.allocator.availability import close
from controlplane.allocator.explanations import SHORTAGES, count_nodes, not_ready, shortage
from controlplane.allocator.offers import Offer
from controlplane.allocator.state import Allocator, Shortage, new_allocator
from tests.allocator.stage import EU, JOB, US, A, B, C

QUOTA = "Quota 'L4' exceeded in region us. Ask for more at https://example.test"


def a_waiting_allocator(*offers: Offer, wanted: int = 3) -> Allocator:
    ready = {US: True, EU: True}
    new = new_allocator(JOB, offers, wanted=wanted, at_s=0.0)
    return replace(new, listing=replace(new.listing, learned=1, learned_s=0.0), clusters=ready)


def test_what_several_zones_have_in_common_is_said_once() -> None:
    allocator = a_waiting_allocator(A, B, C)
    for offer in (A, B):
        allocator = close(allocator, offer.kind, Shortage.QUOTA, QUOTA, 1.0)
    allocator = close(allocator, C.kind, Shortage.STOCKOUT, "no machines", 1.0)
    quota, stockout = SHORTAGES[Shortage.QUOTA], SHORTAGES[Shortage.STOCKOUT]
    what = A.machine_type
    assert shortage(allocator, 2.0) == f"{what} in us-a, us-b {quota}: {QUOTA}; {what} in eu-c {stockout}"


def test_more_than_the_fleet_has_room_for_is_told_though_nothing_else_is_in_the_way() -> None:
    small = replace(A, max_nodes=2), replace(B, max_nodes=1)
    assert count_nodes(3) in shortage(a_waiting_allocator(*small, wanted=4), 1.0)
    assert shortage(a_waiting_allocator(*small, wanted=3), 1.0) == ""


def test_clusters_that_are_not_ready_are_named_with_what_they_wait_for() -> None:
    waits_for = "it is being created"
    allocator = replace(a_waiting_allocator(A, B, C), clusters={}, unready={US: waits_for})
    assert shortage(allocator, 1.0) == f"{not_ready(US, waits_for)}; {not_ready(EU)}"
