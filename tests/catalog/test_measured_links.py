"""The shipped links against measurements of others, if their data is on this machine."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.catalog.places import region_of
from controlplane.catalog.shipped import shipped_catalog, shipped_links

DATA = Path(os.environ.get("TRADEWIND_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
NETWORK = DATA / "sailor" / "network"
needs_data = pytest.mark.skipif(not NETWORK.is_dir(), reason="the measured links are not on this machine")


@needs_data
def test_egress_costs_what_was_paid() -> None:
    links = shipped_links()
    paid = json.loads((NETWORK / "communication_cost.json").read_text())
    for sender, receivers in paid.items():
        for receiver, usd_per_gb in receivers.items():
            assert links.between(sender, receiver).egress_micro_usd_per_gib == round(usd_per_gb * 1_000_000)


def measured() -> Iterator[tuple[str, str, float]]:
    """Gbit/s of one a2-highgpu-1g to another."""
    read = json.loads((NETWORK / "multizone_bandwidths.json").read_text())
    for sender, kinds in read.items():
        for receiver, ends in kinds["A100-40"]["1"].items():
            yield sender, receiver, ends["A100-40"]["1"][1] * 8 / 1e9


@needs_data
def test_bandwidths_are_near_the_measured_ones() -> None:
    links = shipped_links()
    card = next(o.network_bit_per_s for o in shipped_catalog().offers if o.machine_type == "a2-highgpu-1g")
    found = list(measured())
    assert len(found) == 25
    assert any(region_of(sender) != region_of(receiver) for sender, receiver, _ in found)
    for sender, receiver, gbit_per_s in found:
        ours = min(links.between(sender, receiver).bit_per_s, card * links.network_share) / 1e9
        assert 0.75 < ours / gbit_per_s < 1.25, (sender, receiver)
