"""What no single key of a fleet file can show: (path in the file, what is wrong and what would be right)."""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from controlplane.catalog.places import region_of
from controlplane.fleet.spec import GOOGLE, ClusterSpec, Fleet, OfferSpec

T = TypeVar("T")
Problem = tuple[str, str]

OUR_PREFIX = "tradewind-"
SHUTDOWN_GRACES_S = (30, 120)
NOT_YET = {
    "compact_placement": "leave it out, and use machine types with more GPUs where ranks must be close to each other",
    "flex_start": "leave it out, and list more zones or `spot: false` offers: the next offer is asked at once",
    "queued_provisioning": "leave it out, and list more zones or `spot: false` offers: the next offer is asked at once",
    "reservation": "leave it out, and use `spot: false` for machines that are not preempted",
}
"""Keys of an offer that GKE could do and Tradewind cannot yet, with what to use instead."""


def contradictions(fleet: Fleet) -> list[Problem]:
    return [
        *_cloud(fleet),
        *_clusters(fleet),
        *_pod_ranges(fleet),
        *_authorized_networks(fleet),
        *_nodes(fleet),
        *_offers(fleet),
        *_unsupported(fleet),
        *_labels(fleet),
    ]


def _cloud(fleet: Fleet) -> Iterator[Problem]:
    endpoints = fleet.cloud.endpoints
    if endpoints.insecure and endpoints.gke == GOOGLE.endpoint:
        yield "cloud.endpoints.insecure", "would send access tokens to Google without encryption; leave it out"
    for name, url in (
        ("gke", f"//{endpoints.gke}"),
        ("compute", endpoints.compute),
        ("market", endpoints.market),
    ):
        if url is not None and not _can_be_dialled(url):
            yield f"cloud.endpoints.{name}", f"is {url.removeprefix('//')}, which nobody can be reached at"
    credentials = fleet.cloud.credentials
    if credentials is not None and not _has_home(credentials):
        yield "cloud.credentials", f"is {credentials}, but there is no such user here"


def _nodes(fleet: Fleet) -> Iterator[Problem]:
    grace_s = fleet.nodes.shutdown_grace_s
    if grace_s == 0:
        why = "is 0: a preempted node would end its workers at once, and they could not hand over"
        yield "nodes.shutdown_grace_s", f"{why}; use 30, which every GKE version has, or 120"
    elif grace_s not in SHUTDOWN_GRACES_S:
        yield "nodes.shutdown_grace_s", f"is {grace_s}, but must be 30 or 120"


def _can_be_dialled(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _has_home(path: str) -> bool:
    try:
        Path(path).expanduser()
    except RuntimeError:
        return False
    return True


def _clusters(fleet: Fleet) -> Iterator[Problem]:
    yield from _twice("clusters", fleet.clusters, lambda cluster: cluster.name, "name")
    for index, cluster in enumerate(fleet.clusters):
        yield from _places(f"clusters[{index}]", cluster)


def _places(path: str, cluster: ClusterSpec) -> Iterator[Problem]:
    region = region_of(cluster.location)
    if cluster.region is not None and cluster.region != region:
        yield f"{path}.region", f"is {cluster.region}, but {cluster.location} is in {region}"
    for number, zone in enumerate(cluster.zones):
        if region_of(zone) != region:
            yield f"{path}.zones[{number}]", f"is {zone}, but a cluster's nodes are all in its region, {region}"
    yield from _twice(f"{path}.zones", cluster.zones, lambda zone: zone, "")


def _pod_ranges(fleet: Fleet) -> Iterator[Problem]:
    """Ranks reach each other by the addresses of their pods: no two clusters may share them."""
    first: dict[tuple[str, str, str], str] = {}
    for index, cluster in enumerate(fleet.clusters):
        if cluster.pod_range is None:
            continue
        key = (region_of(cluster.location), cluster.subnetwork or fleet.subnetwork, cluster.pod_range)
        other = first.setdefault(key, cluster.name)
        if other != cluster.name:
            text = f"is {cluster.pod_range} of {key[1]}, as is that of {other}; every cluster needs a range of its own"
            yield f"clusters[{index}].pod_range", text


def _authorized_networks(fleet: Fleet) -> Iterator[Problem]:
    for index, block in enumerate(fleet.authorized_networks):
        problem = _block_problem(block)
        if problem:
            yield f"authorized_networks[{index}]", f"{block!r} is no CIDR block: {problem}"


def _block_problem(block: str) -> str:
    """Empty if it is one."""
    address, _, prefix = block.partition("/")
    try:
        longest = ipaddress.ip_address(address).max_prefixlen
    except ValueError:
        return f"{address} is no IP address"
    if int(prefix) > longest:
        return f"the prefix length must be from 0 to {longest}"
    try:
        ipaddress.ip_network(block)
    except ValueError:
        return f"did you mean {ipaddress.ip_network(block, strict=False)}?"
    return ""


def _unsupported(fleet: Fleet) -> Iterator[Problem]:
    for index, offer in enumerate(fleet.offers):
        for key, instead in NOT_YET.items():
            if getattr(offer, key) not in (None, False):
                yield f"offers[{index}].{key}", f"is not supported yet; {instead}"


def _offers(fleet: Fleet) -> Iterator[Problem]:
    clusters = {cluster.name: cluster for cluster in fleet.clusters}
    for index, offer in enumerate(fleet.offers):
        path = f"offers[{index}]"
        cluster = clusters.get(offer.cluster)
        if cluster is None:
            yield (
                f"{path}.cluster",
                f"there is no cluster '{offer.cluster}' in this file; there are {', '.join(clusters)}",
            )
        elif offer.zone not in cluster.zones:
            text = f"is {offer.zone}, which is none of the zones of {cluster.name}: {', '.join(cluster.zones)}"
            yield f"{path}.zone", text
        if offer.accelerator is None and offer.per_node is not None:
            yield f"{path}.per_node", f"is {offer.per_node}, but no accelerator is named"
    yield from _twice("offers", fleet.offers, _kind, "")


def _kind(offer: OfferSpec) -> tuple[object, ...]:
    return offer.cluster, offer.zone, offer.machine_type, offer.accelerator, offer.per_node or 1, offer.spot


def _labels(fleet: Fleet) -> Iterator[Problem]:
    for key in fleet.labels:
        if key.startswith(OUR_PREFIX):
            yield f"labels.{key}", f"begins with '{OUR_PREFIX}', which is kept for Tradewind's own labels"


def _twice(path: str, items: Sequence[T], key: Callable[[T], object], field: str) -> Iterator[Problem]:
    first: dict[object, int] = {}
    for index, item in enumerate(items):
        before = first.setdefault(key(item), index)
        if before != index:
            where = f"{path}[{index}].{field}" if field else f"{path}[{index}]"
            yield where, f"says the same as {path}[{before}]"
