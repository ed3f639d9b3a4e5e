"""Steps and dollars of a placement, by hand, and what must hold of any."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from pytest import approx

from controlplane.catalog.links import BYTES_PER_GIB
from controlplane.catalog.money import MicroDollars
from controlplane.throughput.estimate import Impossible, estimate
from controlplane.throughput.placement import Group, Placement, placement_of
from controlplane.throughput.profile import Collective, Compute
from tests.throughput.builders import FAST, SLOW, a_group, a_profile, estimated, some_links

US, US_B, WEST, EUROPE = "us-central1-a", "us-central1-b", "us-west1-a", "europe-west4-a"


def test_one_machine_computes_and_sends_nothing() -> None:
    found = estimated(a_profile(), a_group())
    assert (found.step_s, found.communication_s, found.egress_bytes_per_step) == (1.28, 0.0, 0)
    assert found.machines_micro_usd_per_hour == found.micro_usd_per_hour == 1_000_000
    assert found.micro_usd_per_1000_steps == approx(1280 / 3600 * 1e6, abs=1)


def test_a_ring_moves_twice_its_bytes_but_for_one_share() -> None:
    found = estimated(a_profile(), a_group(machines=4))
    assert found.compute_s == approx(0.32)
    assert found.communication_s == approx(2 * 3 / 4 * 1.0)
    assert found.step_s == approx(0.32 + 1.5)


def test_the_largest_share_of_the_batch_decides() -> None:
    assert estimated(a_profile(global_batch=10), a_group(machines=3)).compute_s == approx(0.04)


def test_the_slowest_accelerator_decides() -> None:
    profile = a_profile(compute={"L4": Compute(0.01), "T4": Compute(0.03, 0.5)}, gradient_bytes=0)
    found = estimated(profile, a_group(), a_group(accelerator="T4"))
    assert found.step_s == approx(64 * 0.03 + 0.5)


def test_the_slowest_link_decides_be_it_a_card_or_a_way() -> None:
    profile = a_profile()
    inside = estimated(profile, a_group(machines=2), a_group(US_B, 2))
    assert inside.communication_s == approx(1.5)
    card = estimated(profile, a_group(machines=3), a_group(US_B, network_bit_per_s=SLOW))
    way = estimated(profile, a_group(machines=3), a_group(WEST))
    assert card.communication_s == way.communication_s == approx(15.0)


def test_what_was_measured_between_two_zones_goes_before_what_is_usual() -> None:
    links = some_links(measured_bit_per_s={(US, WEST): FAST, (WEST, US): FAST / 2})
    assert estimated(a_profile(), a_group(), a_group(WEST), links=links).communication_s == approx(2.0)


def test_a_card_gives_a_collective_only_its_share() -> None:
    found = estimated(a_profile(), a_group(machines=2), links=some_links(network_share=0.5))
    assert found.communication_s == approx(2.0)


def test_hidden_communication_is_the_part_that_overlaps_and_never_more_than_the_computation() -> None:
    def step_s(overlap: float, batch: int = 128) -> float:
        return estimated(a_profile(overlap=overlap, global_batch=batch), a_group(machines=2)).step_s

    assert step_s(0.0) == approx(0.64 + 1.0)
    assert step_s(0.5) == approx(0.64 + 0.5)
    assert step_s(1.0) == approx(1.0)
    assert step_s(1.0, batch=1280) == approx(6.4)


def test_across_regions_a_hierarchy_sends_less_than_one_ring() -> None:
    groups = (a_group(machines=4), a_group(EUROPE, 4))
    ring = estimated(a_profile(), *groups)
    levels = estimated(a_profile(collective=Collective.HIERARCHICAL), *groups)
    assert ring.communication_s == approx(2 * 7 / 8 * 10)
    assert levels.communication_s == approx(1.5 + 10)
    assert ring.egress_bytes_per_step == approx(2 * 2 * 7 / 8 * 1e9)
    assert levels.egress_bytes_per_step == approx(2 * 1e9)


def test_in_one_region_a_hierarchy_is_a_ring() -> None:
    groups = (a_group(machines=2), a_group(US_B, 2))
    levels = estimated(a_profile(collective=Collective.HIERARCHICAL), *groups)
    assert levels == estimated(a_profile(), *groups)


def test_neighbours_in_the_ring_are_neighbours_on_the_network_however_the_groups_are_listed() -> None:
    listed = Placement((a_group(US, 2), a_group(EUROPE, 2), a_group(WEST, 1), a_group(US_B, 2)))
    found = estimate(a_profile(), listed, some_links())
    assert found == estimated(a_profile(), *reversed(listed.groups))


def test_egress_is_paid_by_the_gibibyte_for_each_crossing() -> None:
    profile = a_profile(gradient_bytes=BYTES_PER_GIB)
    found = estimated(profile, a_group(), a_group(US_B))
    assert found.egress_bytes_per_step == 2 * BYTES_PER_GIB
    per_step = 2 * 10_000
    machines = 2_000_000 * 1000 * found.step_s / 3600
    assert found.micro_usd_per_1000_steps == approx(machines + per_step * 1000, abs=1)
    assert found.egress_micro_usd_per_hour == approx(per_step * 3600 / found.step_s, abs=1)
    assert found.micro_usd_per_hour == 2_000_000 + found.egress_micro_usd_per_hour


def test_several_replicas_in_a_machine_are_added_up_over_its_bus_first() -> None:
    group = a_group(machines=2, gpus_per_machine=4, bus_bit_per_s=FAST)
    assert estimated(a_profile(), group).communication_s == approx(1.5 + 1.0)
    assert estimated(a_profile(replica_gpus=4), group).communication_s == approx(1.0)


def test_a_replica_that_spans_machines_is_shared_between_their_cards() -> None:
    found = estimated(a_profile(replica_gpus=2), a_group(machines=4))
    assert found.replicas == 2
    assert found.communication_s == approx(0.5)


def test_gpus_that_make_no_replica_are_spare_and_cost_all_the_same() -> None:
    found = estimated(a_profile(replica_gpus=4), a_group(machines=6))
    assert (found.replicas, found.machines_micro_usd_per_hour) == (1, 6_000_000)


@pytest.mark.parametrize(
    ("profile", "groups", "parts"),
    [
        ({}, (a_group(accelerator="H100"),), [" H100 "]),
        ({"replica_gpus": 8}, (a_group(machines=7),), ["8 GPUs", " 7"]),
        ({"global_batch": 4}, (a_group(machines=5),), ["5 replicas", "batch of 4"]),
        ({}, (), ["1 GPUs", " 0"]),
    ],
)
def test_what_cannot_be_is_told_with_the_number(
    profile: dict[str, Any], groups: tuple[Group, ...], parts: list[str]
) -> None:
    found = estimate(a_profile(**profile), placement_of(groups), some_links())
    assert isinstance(found, Impossible)
    assert [part for part in parts if part not in found.why] == []


zones = st.sampled_from([US, US_B, WEST, EUROPE])
groups = st.builds(
    a_group,
    zones,
    st.integers(1, 8),
    gpus_per_machine=st.sampled_from([1, 2, 4, 8]),
    micro_usd_per_machine_hour=st.integers(1, 10**8).map(MicroDollars),
    network_bit_per_s=st.floats(1e8, 1e12),
    bus_bit_per_s=st.floats(1e10, 1e13),
)
profiles = st.builds(
    a_profile,
    gradient_bytes=st.integers(0, 10**11),
    global_batch=st.integers(512, 4096),
    overlap=st.floats(0, 1),
    collective=st.sampled_from(Collective),
)


@given(profiles, st.lists(groups, min_size=1, max_size=5))
def test_of_any_placement_the_figures_agree_with_each_other(profile: Any, chosen: list[Group]) -> None:
    found = estimated(profile, *chosen)
    assert found.compute_s <= found.step_s <= found.compute_s + found.communication_s + 1e-9
    assert found.step_s >= found.communication_s * (1 - profile.overlap) - 1e-9
    assert found.steps_per_s * found.step_s == approx(1)
    assert found.micro_usd_per_hour == found.machines_micro_usd_per_hour + found.egress_micro_usd_per_hour
    per_1000 = found.micro_usd_per_hour / found.steps_per_s / 3600 * 1000
    assert found.micro_usd_per_1000_steps == approx(per_1000, rel=1e-6, abs=found.step_s * 1000 / 3600 + 2)
    one_zone = len({group.zone for group in chosen}) == 1
    assert (found.egress_bytes_per_step == 0) >= one_zone


@given(profiles, st.lists(groups, min_size=1, max_size=4), st.floats(1.0, 10.0))
def test_faster_links_never_make_a_step_slower(profile: Any, chosen: list[Group], factor: float) -> None:
    usual = some_links()
    ways = {far: structs.replace(way, bit_per_s=way.bit_per_s * factor) for far, way in usual.by_distance.items()}
    faster = structs.replace(usual, by_distance=ways)
    assert estimated(profile, *chosen, links=faster).step_s <= estimated(profile, *chosen).step_s + 1e-9
