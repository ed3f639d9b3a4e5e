"""Where a zone is."""

import pytest

from controlplane.catalog.places import region_of


@pytest.mark.parametrize("place", ["us-central1-a", "us-central1"])
def test_a_zone_and_its_region_have_the_same_region(place: str) -> None:
    assert region_of(place) == "us-central1"
