"""What no single key of a fleet file can show: (path in the file, what is wrong and what would be right)."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from controlplane.catalog.places import region_of
from controlplane.clouds.spec import ClusterSpec, Fleet, OfferSpec

T = TypeVar("T")
Problem = tuple[str, str]

OUR_PREFIX = "tradewind-"


def contradictions(fleet: Fleet) -> list[Problem]:
    return [
        *_clusters(fleet),
        *_offers(fleet),
        *_labels(fleet),
    ]


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
