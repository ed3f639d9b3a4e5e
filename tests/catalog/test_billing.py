"""SKUs of Google's price list become prices of whole machines."""

import msgspec
import pytest

from controlplane.catalog.money import MicroDollars, usd_text
from controlplane.catalog.price_list import Price, PriceList, reprice
from controlplane.catalog.shipped import shipped_catalog
from controlplane.clouds.gke.price_parts import Page, Sku, parts_of, prices_of
from tests.catalog.builders import Json, a_catalog, a_sku, an_offer, l4_skus


def skus_of(*raw: Json) -> tuple[Sku, ...]:
    return msgspec.convert({"skus": list(raw)}, Page).skus


def prices(*raw: Json) -> dict[bool, int]:
    return {price.spot: price.micro_usd_per_hour for price in prices_of(parts_of(skus_of(*raw)), [an_offer()])}


def test_a_machine_costs_its_cores_its_memory_and_its_gpu() -> None:
    found = prices(*l4_skus())
    assert found[False] == 853_608
    assert found[True] == round((8 * 9_995_000 + 32 * 1_171_000 + 223_848_000) / 1000)


def test_the_price_of_the_parts_is_the_published_price_of_the_machine() -> None:
    offer = shipped_catalog().find("us-central1-a", "g2-standard-8", "L4")
    assert offer is not None
    assert offer.on_demand_micro_usd_per_hour is not None
    assert abs(prices(*l4_skus())[False] - offer.on_demand_micro_usd_per_hour) < 100


@pytest.mark.parametrize("missing", range(3))
def test_a_machine_of_which_a_part_has_no_price_has_none(missing: int) -> None:
    on_demand = [sku for sku in l4_skus() if sku["category"]["usageType"] == "OnDemand"]
    parts = [on_demand[0], on_demand[1], on_demand[2]]
    del parts[missing]
    assert prices(*parts) == {}


@pytest.mark.parametrize(
    "change",
    [{"currency": "EUR"}, {"unit": "mo"}, {"nanos": 0}, {"regions": ("europe-west4",)}, {"usage": "Commit3Yr"}],
)
def test_a_part_in_another_currency_unit_place_or_contract_is_no_part(change: Json) -> None:
    gpu = a_sku(**{"description": "Nvidia L4 GPU running in Iowa", "nanos": 560_040_000, **change})
    assert prices(gpu, *l4_skus()[2:4]) == {}


def test_a100s_of_both_sizes_are_told_apart() -> None:
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


def a_list(spot: int | None = None, on_demand: int | None = None) -> PriceList:
    offer = an_offer()
    given = ((True, spot), (False, on_demand))
    return PriceList(
        "2026-09-01",
        "a test",
        tuple(
            Price(offer.region, offer.machine_type, offer.accelerator, how, MicroDollars(price))
            for how, price in given
            if price is not None
        ),
    )


def test_new_prices_replace_the_known_ones_in_every_zone_of_a_region() -> None:
    catalog = a_catalog(an_offer("us-central1-a"), an_offer("us-central1-b"), an_offer("us-east1-b"))
    done = reprice(catalog, a_list(spot=400_000))
    assert [offer.spot_micro_usd_per_hour for offer in done.catalog.offers] == [400_000, 400_000, 512_000]
    assert (done.changed, done.refused, done.catalog.date) == (2, (), "2026-09-01")


@pytest.mark.parametrize("spot", [1, 0, 127_999, 2_048_001])
def test_a_price_that_cannot_be_leaves_the_known_one(spot: int) -> None:
    done = reprice(a_catalog(), a_list(spot=spot))
    assert done.catalog.offers[0].spot_micro_usd_per_hour == 512_000
    parts = ("g2-standard-8", "L4", "us-central1", f" {usd_text(spot)} USD", usd_text(512_000))
    assert [part for part in parts if part not in done.refused[0]] == []


def test_spot_that_would_be_dearer_than_on_demand_changes_neither() -> None:
    done = reprice(a_catalog(), a_list(spot=900_000, on_demand=800_000))
    assert done.catalog.offers == a_catalog().offers
    assert len(done.refused) == 1
