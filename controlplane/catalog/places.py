"""Zones, regions and continents, and the distance between two zones."""

import re
from enum import StrEnum
from functools import lru_cache

_ZONE = re.compile(r"^(?P<region>.+)-[a-z]\Z")
_CONTINENTS = {
    "us": "north-america",
    "northamerica": "north-america",
    "southamerica": "south-america",
    "europe": "europe",
    "asia": "asia",
    "australia": "oceania",
    "me": "middle-east",
    "africa": "africa",
}
CONTINENTS = frozenset(_CONTINENTS.values())


class Distance(StrEnum):
    SAME_ZONE = "same_zone"
    SAME_REGION = "same_region"
    SAME_CONTINENT = "same_continent"
    OTHER_CONTINENT = "other_continent"


@lru_cache(maxsize=4096)
def region_of(zone: str) -> str:
    """The region of a zone, whose name is its region, a hyphen and one letter; any other name is its own region.

    The provider of a cloud with other names translates them to this form.
    """
    matched = _ZONE.match(zone)
    return matched["region"] if matched else zone


def continent_of(region: str) -> str:
    first = region.partition("-")[0]
    return _CONTINENTS.get(first, first)


@lru_cache(maxsize=65536)
def distance(one: str, other: str) -> Distance:
    if one == other:
        return Distance.SAME_ZONE
    if region_of(one) == region_of(other):
        return Distance.SAME_REGION
    if continent_of(region_of(one)) == continent_of(region_of(other)):
        return Distance.SAME_CONTINENT
    return Distance.OTHER_CONTINENT
