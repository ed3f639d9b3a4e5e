"""The shipped data: complete, plausible, as published, and refused with all its mistakes."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalog.accelerators import ACCELERATORS, BY_NAME, canonical, matching
from controlplane.catalog.money import micro_dollars
from controlplane.catalog.shipped import read_links, read_prices, shipped_catalog, shipped_links
from runtime.errors import UserError

DATA = Path(os.environ.get("TRADEWIND_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
PUBLISHED = DATA / "prices" / "gcp_2026-08-22.csv"


def a_price_file(**changes: Any) -> dict[str, Any]:
    machine = {"machine_type": "g2-standard-8", "accelerator": "L4", "gpus": 1, "vcpus": 8, "memory_gib": 32}
    price = {"region": "us-central1", "machine_type": "g2-standard-8", "accelerator": "L4", "zones": ["a"]}
    file = {
        "version": 1,
        "cloud": "gcp",
        "date": "2026-08-22",
        "source": "a test",
        "machines": [{**machine, "network_gbit_per_s": 16}],
        "prices": [{**price, "spot_usd_per_hour": "0.512", "on_demand_usd_per_hour": "0.8536"}],
    }
    return {**file, **changes}


def problems_of(file: object) -> tuple[str, ...]:
    with pytest.raises(UserError) as refused:
        read_prices(json.dumps(file).encode(), "prices.json")
    return refused.value.problems


def test_every_accelerator_is_offered_somewhere_with_a_date_and_a_source() -> None:
    catalog = shipped_catalog()
    assert {offer.accelerator for offer in catalog.offers} == set(BY_NAME)
    assert catalog.date == "2026-08-22"
    assert "list prices" in catalog.source


def test_offers_are_unique_and_spot_is_never_dearer() -> None:
    offers = shipped_catalog().offers
    assert len({(offer.zone, offer.machine_type, offer.accelerator) for offer in offers}) == len(offers)
    assert all(0 < (o.spot_micro_usd_per_hour or 1) <= (o.on_demand_micro_usd_per_hour or 10**9) for o in offers)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published prices are not on this machine")
def test_prices_and_sizes_are_those_that_were_published() -> None:
    catalog = shipped_catalog()
    with PUBLISHED.open() as file:
        rows = [row for row in csv.DictReader(file) if row["accelerator"] in BY_NAME]
    assert len(rows) == len(catalog.offers)
    for row in rows:
        offer = catalog.find(row["zone"], row["machine_type"], row["accelerator"])
        assert offer is not None
        assert offer.spot_micro_usd_per_hour == micro_dollars(row["spot_usd_per_hour"])
        assert offer.on_demand_micro_usd_per_hour == micro_dollars(row["usd_per_hour"])
        sizes = (offer.region, offer.gpus, offer.vcpus, offer.memory_gib)
        assert sizes == (row["region"], int(row["accelerators"]), int(row["vcpus"]), int(row["memory_gib"]))


def test_offers_are_selected_by_accelerator_region_and_beginning() -> None:
    catalog = shipped_catalog()
    chosen = list(catalog.select(accelerators=frozenset({"H100"}), region="us-"))
    assert {offer.accelerator for offer in chosen} == {"H100"}
    assert all(offer.zone.startswith("us-") for offer in chosen)
    assert {offer.zone for offer in catalog.select(region="us-central1-a")} == {"us-central1-a"}
    assert {offer.region for offer in catalog.select(region="us-east1")} == {"us-east1"}
    assert list(catalog.select(region="us")) == []


def test_a_small_file_is_read() -> None:
    (offer,) = read_prices(json.dumps(a_price_file()).encode(), "prices.json").offers
    assert (offer.zone, offer.gpu_memory_gib, offer.network_bit_per_s) == ("us-central1-a", 24, 16e9)
    assert offer.micro_usd_per_hour(spot=True) == 512_000


def test_all_mistakes_of_form_are_told_together() -> None:
    row = {**a_price_file()["prices"][0], "spot_usd_per_hour": 0.5, "region": "moon"}
    reported = problems_of(a_price_file(prices=[row], date="yesterday", version=2))
    assert len(reported) == 4
    assert any(line.startswith("prices[0].region") for line in reported)


def test_all_mistakes_of_sense_are_told_together() -> None:
    row = a_price_file()["prices"][0]
    reported = problems_of(
        a_price_file(
            prices=[
                {**row, "spot_usd_per_hour": "0.9"},
                row,
                {**row, "region": "us-east1", "machine_type": "g2-standard-9"},
                {**row, "region": "us-east4", "spot_usd_per_hour": "0"},
                {"region": "us-west1", "machine_type": "g2-standard-8", "accelerator": "L4", "zones": ["a"]},
            ]
        )
    )
    expected = [
        ("prices[0]", "g2-standard-8 with L4", "twice", "us-central1-a"),
        ("prices[0]", "g2-standard-8 with L4", "more as spot", "us-central1"),
        ("prices[1]", "g2-standard-8 with L4", "twice", "us-central1-a"),
        ("prices[2]", "g2-standard-9 with L4", "machines"),
        ("prices[3]", "g2-standard-8 with L4", "price 0", "us-east4"),
        ("prices[4]", "g2-standard-8 with L4", "no price", "us-west1"),
    ]
    missing = [[part for part in parts if part not in line] for line, parts in zip(reported, expected, strict=True)]
    assert missing == [[]] * 6


def test_what_is_not_json_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match=r"prices\.json .*JSON"):
        read_prices(b"zone,price", "prices.json")


def test_links_with_mistakes_are_refused_with_all_of_them() -> None:
    file = {
        "version": 1,
        "date": "2026-08-22",
        "source": "a test",
        "network_share": 1,
        "distances": {"next_door": {"gbit_per_s": 1, "egress_usd_per_gib": "0"}},
        "egress": [{"between": ["europe", "atlantis"], "usd_per_gib": "0.1"}],
    }
    with pytest.raises(UserError) as refused:
        read_links(json.dumps(file).encode(), "links.json")
    assert len(refused.value.problems) == 1 + 4 + 1


def test_the_way_gets_slower_and_dearer_with_the_distance() -> None:
    links = shipped_links()
    receivers = ("us-central1-a", "us-central1-b", "us-west1-a", "europe-west4-a", "asia-east1-a")
    ways = [links.between("us-central1-a", receiver) for receiver in receivers]
    assert [way.egress_micro_usd_per_gib for way in ways] == [0, 10_000, 20_000, 50_000, 80_000]
    speeds = [way.bit_per_s for way in ways]
    assert speeds == sorted(speeds, reverse=True)


def test_continents_are_paired_in_either_direction_and_unknown_ones_cost_the_most() -> None:
    links = shipped_links()
    there, back = links.between("us-east1-b", "europe-west4-a"), links.between("europe-west4-a", "us-east1-b")
    assert there == back
    far = links.between("southamerica-east1-a", "asia-east1-a").egress_micro_usd_per_gib
    assert far == max(way.egress_micro_usd_per_gib for way in links.by_distance.values())


def test_people_name_accelerators_in_several_ways() -> None:
    assert [each.name for each in matching("a100")] == ["A100-40", "A100-80"]
    assert [each.name for each in matching("A100-80")] == ["A100-80"]
    assert [each.name for each in matching("nvidia-l4")] == ["L4"]
    assert matching("A1") == ()
    assert all(canonical(each.alias) == canonical(each.name) == each.name for each in ACCELERATORS)
    assert (canonical("nvidia-tesla-k80"), canonical(None)) == ("nvidia-tesla-k80", "")
