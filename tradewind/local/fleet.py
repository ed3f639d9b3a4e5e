"""The fleet of a local stack: an example file with the addresses of the stack's simulator."""

from typing import Any

import msgspec

from controlplane.catalog.places import region_of
from controlplane.clouds.gke.fleet_file import GkeFleet
from controlplane.clouds.spec import ClusterSpec, Fleet

KEY_FILE = "simulator-key.json"


def decode_fleet(text: bytes) -> GkeFleet:
    return msgspec.yaml.decode(text, type=GkeFleet)


def home(fleet: Fleet) -> ClusterSpec:
    """The cluster whose machines are requested first."""
    return fleet.clusters[0]


def region(cluster: ClusterSpec) -> str:
    return cluster.region or region_of(cluster.location)


def fleet_at(example: str, grpc_port: int, http_port: int, workers: int) -> bytes:
    """The example file with the simulator's addresses, and with room for all workers in every zone."""
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
