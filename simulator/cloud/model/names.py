"""Names in Google's form: projects/P/locations/L/clusters/C/nodePools/N, zones and their regions."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, NewType

NodeName = NewType("NodeName", str)
InstanceId = NewType("InstanceId", str)
OperationName = NewType("OperationName", str)

ANYWHERE = "-"
_LOCATION = re.compile(r"^([a-z]+-[a-z]+\d+)(-[a-z])?$")
_KINDS = {"projects": "project", "locations": "location", "zones": "location", "clusters": "cluster"} | {
    "nodePools": "pool",
    "operations": "operation",
}
_OWN_NAME = re.compile(r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")


class ClusterKey(NamedTuple):
    project: str
    location: str
    cluster: str

    def __str__(self) -> str:
        return f"projects/{self.project}/locations/{self.location}/clusters/{self.cluster}"


class PoolKey(NamedTuple):
    project: str
    location: str
    cluster: str
    pool: str

    @property
    def of(self) -> ClusterKey:
        return ClusterKey(self.project, self.location, self.cluster)

    def __str__(self) -> str:
        return f"{self.of}/nodePools/{self.pool}"


@dataclass(frozen=True, slots=True)
class Path:
    """The parts of a resource name; missing parts are empty."""

    project: str = ""
    location: str = ""
    cluster: str = ""
    pool: str = ""
    operation: str = ""

    @property
    def cluster_key(self) -> ClusterKey:
        return ClusterKey(self.project, self.location, self.cluster)

    @property
    def pool_key(self) -> PoolKey:
        return PoolKey(self.project, self.location, self.cluster, self.pool)


def parse(name: str) -> Path | None:
    """The parts of a resource name, or None if the text is malformed."""
    parts = name.split("/")
    if len(parts) % 2 or not all(parts):
        return None
    values: dict[str, str] = {}
    for kind, value in zip(parts[::2], parts[1::2], strict=True):
        if kind not in _KINDS:
            return None
        values[_KINDS[kind]] = value
    return Path(**values) if "project" in values else None


def is_location(text: str) -> bool:
    return _LOCATION.match(text) is not None


def is_zone(text: str) -> bool:
    match = _LOCATION.match(text)
    return match is not None and match[2] is not None


@lru_cache(maxsize=1000)
def region_of(location: str) -> str:
    """The region of a zone; a region itself."""
    match = _LOCATION.match(location)
    return match[1] if match else location


def is_own_name(text: str) -> bool:
    """True if a cluster or a pool may have this name."""
    return _OWN_NAME.match(text) is not None
