"""Prices of whole machines are computed from the SKUs of Google's price list."""

import msgspec
import pytest

from controlplane.catalog.shipped import shipped_catalog
from controlplane.clouds.gke.price_parts import Page, Sku, parts_of, prices_of
from tests.catalog.builders import Json, a_sku, an_offer, l4_skus


def skus_of(*raw: Json) -> tuple[Sku, ...]:
    return msgspec.convert({"skus": list(raw)}, Page).skus


def prices(*raw: Json) -> dict[bool, int]:
    return {price.spot: price.micro_usd_per_hour for price in prices_of(parts_of(skus_of(*raw)), [an_offer()])}


def test_a_machine_costs_its_cores_its_memory_and_its_gpu() -> None:
    on_demand = (8 * 24_988_000 + 32 * 2_927_000 + 560_040_000) / 1000
    spot = (8 * 9_995_000 + 32 * 1_171_000 + 223_848_000) / 1000
    assert prices(*l4_skus()) == {False: round(on_demand), True: round(spot)}


def test_the_price_of_the_parts_is_the_shipped_price_of_the_machine() -> None:
    offer = shipped_catalog().find("us-central1-a", "g2-standard-8", "L4")
    assert offer is not None
    assert offer.on_demand_micro_usd_per_hour is not None
    assert abs(prices(*l4_skus())[False] - offer.on_demand_micro_usd_per_hour) < 100


@pytest.mark.parametrize("missing", range(3))
def test_a_machine_has_no_price_if_one_of_its_parts_has_none(missing: int) -> None:
    on_demand = [sku for sku in l4_skus() if sku["category"]["usageType"] == "OnDemand"]
    parts = [on_demand[0], on_demand[1], on_demand[2]]
    del parts[missing]
    assert prices(*parts) == {}


@pytest.mark.parametrize(
    "change",
    [{"currency": "EUR"}, {"unit": "mo"}, {"nanos": 0}, {"regions": ("europe-west4",)}, {"usage": "Commit3Yr"}],
)
def test_a_part_in_another_currency_unit_place_or_contract_is_no_part(change: Json) -> None:
    gpu: Json = {"description": "Nvidia L4 GPU running in Iowa", "nanos": 560_040_000}
    core_and_ram = l4_skus()[2:4]
    assert list(prices(a_sku(**gpu), *core_and_ram)) == [False]
    assert prices(a_sku(**gpu | change), *core_and_ram) == {}


def test_a100s_of_both_sizes_are_different_parts() -> None:
    parts = parts_of(
        skus_of(
            a_sku("Nvidia Tesla A100 GPU running in Americas", 933_908_000, units="2"),
            a_sku("Nvidia Tesla A100 80GB GPU running in Americas", 928_000_000, units="3"),
        )
    )
    assert {part.of: nanos for part, nanos in parts.items()} == {"A100-40": 2_933_908_000, "A100-80": 3_928_000_000}


def test_every_family_and_accelerator_of_the_catalog_can_be_priced() -> None:
    raw = [
        a_sku(f"{spot}{family} Instance {part} running in Iowa", 1000, unit=unit, usage=usage)
        for spot, usage in (("", "OnDemand"), ("Spot Preemptible ", "Preemptible"))
        for family in ("N1 Predefined", "G2", "A2", "A3")
        for part, unit in (("Core", "h"), ("Ram", "GiBy.h"))
    ]
    names = ("Tesla T4", "L4", "Tesla V100", "Tesla A100", "Tesla A100 80GB", "H100 80GB")
    for name in names:
        raw.append(a_sku(f"Nvidia {name} GPU running in Iowa", 1000))
        spot = f"Nvidia {name} GPU attached to Spot Preemptible VMs running in Iowa"
        raw.append(a_sku(spot, 1000, usage="Preemptible"))
    iowa = [offer for offer in shipped_catalog().offers if offer.region == "us-central1"]
    machines = {(offer.machine_type, offer.accelerator) for offer in iowa}
    assert len(prices_of(parts_of(skus_of(*raw)), iowa)) == 2 * len(machines)
