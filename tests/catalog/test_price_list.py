"""Fetched prices replace those of the catalog, unless they are implausible."""

import pytest

from controlplane.catalog.money import MicroDollars, usd_text
from controlplane.catalog.price_list import Price, PriceList, reprice
from tests.catalog.builders import a_catalog, an_offer


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


@pytest.mark.parametrize("spot", [128_000, 2_048_000])
def test_a_price_may_change_by_a_factor_of_four(spot: int) -> None:
    done = reprice(a_catalog(an_offer(spot=512_000, on_demand=None)), a_list(spot=spot))
    assert done.catalog.offers[0].spot_micro_usd_per_hour == spot
    assert (done.changed, done.refused) == (1, ())


@pytest.mark.parametrize("spot", [1, 0, 127_999, 2_048_001])
def test_an_implausible_price_is_refused_and_the_known_one_stays(spot: int) -> None:
    done = reprice(a_catalog(an_offer(spot=512_000, on_demand=None)), a_list(spot=spot))
    assert done.catalog.offers[0].spot_micro_usd_per_hour == 512_000
    assert (done.changed, len(done.refused)) == (0, 1)
    parts = ("g2-standard-8", "L4", "us-central1", f" {usd_text(spot)} USD", usd_text(512_000))
    assert [part for part in parts if part not in done.refused[0]] == []


def test_a_spot_price_above_the_price_on_demand_changes_neither() -> None:
    done = reprice(a_catalog(), a_list(spot=900_000, on_demand=800_000))
    assert done.catalog.offers == a_catalog().offers
    assert (done.changed, len(done.refused)) == (0, 1)
