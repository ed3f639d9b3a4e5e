"""The fleet of a local stack: that of an example file, at the simulator of this stack."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

KEY_FILE = "simulator-key.json"


class Cluster(Struct, frozen=True):
    name: str
    location: str
    zones: Annotated[tuple[str, ...], Meta(min_length=1)]

    @property
    def region(self) -> str:
        return region_of(self.location)


class Offer(Struct, frozen=True):
    zone: str
    machine_type: str
    accelerator: str


class Endpoints(Struct, frozen=True):
    gke: str


class Cloud(Struct, frozen=True):
    endpoints: Endpoints


class Fleet(Struct, frozen=True):
    """Of a fleet file, what has to be known to play with it."""

    cloud: Cloud
    clusters: Annotated[tuple[Cluster, ...], Meta(min_length=2)]
    offers: Annotated[tuple[Offer, ...], Meta(min_length=2)]

    @property
    def home(self) -> Cluster:
        """Where machines are asked for first."""
        return self.clusters[0]

    def region(self, cluster: str) -> str:
        return next((each.region for each in self.clusters if each.name == cluster), "")


def region_of(place: str) -> str:
    """Of a zone or a region."""
    region, _, last = place.rpartition("-")
    return region if len(last) == 1 else place


def fleet_at(example: str, grpc_port: int, http_port: int, workers: int) -> bytes:
    """The example with the simulator's addresses, and with room for all workers in every zone."""
    fleet: dict[str, Any] = msgspec.yaml.decode(example)
    endpoints = {
        "gke": f"127.0.0.1:{grpc_port}",
        "insecure": True,
        "compute": f"http://127.0.0.1:{http_port}/compute/v1",
        "market": f"http://127.0.0.1:{http_port}/prices",
    }
    cloud = {**fleet["cloud"], "credentials": KEY_FILE, "endpoints": endpoints}
    offers = [{**offer, "max_nodes": workers} for offer in fleet["offers"]]
    return msgspec.yaml.encode({**fleet, "cloud": cloud, "offers": offers})


def read_fleet(text: bytes) -> Fleet:
    return msgspec.yaml.decode(text, type=Fleet)
