"""Reading a fleet file: it reports all problems at once, each with its path.

A file with `cloud:` is decoded by its provider. A file with `clouds:` is divided into one such file for each cloud, and
the decoded parts are joined.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from controlplane.catalog.places import region_of
from controlplane.clouds.providers import DEFAULT, Provider, kinds, provider_of
from controlplane.clouds.spec import CloudSpec, ClusterSpec, Fleet, FleetOfSeveralClouds, NodeSpec, OfferSpec
from runtime.errors import UserError
from runtime.problems import decode_checked
from runtime.yaml_files import yaml_file

HINT = "docs/fleet.md describes every key; examples/fleet-gke.yaml is a complete example"
SEVERAL = "clouds"
OUR_PREFIX = "tradewind-"

T = TypeVar("T")
Problem = tuple[str, str]
"""The path in the file; what is wrong and what is valid."""


def read_fleet(path: Path) -> Fleet:
    """Read and check a fleet file. Raises `UserError`."""
    try:
        data = yaml_file(path, Any)
        folder = path.resolve().parent
        if isinstance(data, Mapping) and isinstance(data.get(SEVERAL), Mapping):
            return _several(data, str(path), folder)
        return _decoded(data, str(path), folder)
    except UserError as error:
        raise UserError(error.message, error.hint or HINT, error.problems) from None


def _decoded(data: Any, what: str, folder: Path) -> Fleet:
    provider = _provider(data)
    fleet = decode_checked(provider.fleet_type, data, what=what, checks=partial(_problems, provider))
    return provider.placed(fleet, folder)


def _provider(data: Any) -> Provider:
    cloud = data.get("cloud") if isinstance(data, Mapping) else None
    kind = cloud.get("kind") if isinstance(cloud, Mapping) else None
    return provider_of(kind if kind in kinds() else DEFAULT)


def _problems(provider: Provider, fleet: Fleet) -> list[Problem]:
    return [*provider.problems(fleet), *_contradictions(fleet)]


def _several(data: Mapping[str, Any], what: str, folder: Path) -> Fleet:
    """Decode the part of each cloud, and report the problems of all parts together."""
    found = [f"{path}: {text}" for path, text in _division_problems(data)]
    parts: dict[str, Fleet] = {}
    for name, part in _division(data).items():
        try:
            parts[name] = _decoded(part.data, what, folder)
        except UserError as error:
            found += [part.renamed(problem) for problem in error.problems]
    found = found or [f"{path}: {text}" for path, text in _shared_places(parts)]
    if found:
        raise UserError(f"{what} has {len(found)} problem{'s' if len(found) > 1 else ''}:", problems=tuple(found))
    clusters = {cluster.name: cluster for part in parts.values() for cluster in part.clusters}
    offers = {name: iter(part.offers) for name, part in parts.items()}
    cloud_of = {cluster.name: name for name, part in parts.items() for cluster in part.clusters}
    first = next(iter(parts.values()))
    return FleetOfSeveralClouds(
        name=first.name,
        cloud=CloudSpec(kind=SEVERAL),
        clusters=tuple(clusters[each["name"]] for each in data["clusters"]),
        offers=tuple(next(offers[cloud_of[each["cluster"]]]) for each in data["offers"]),
        pods=first.pods,
        system_pool=first.system_pool,
        nodes=NodeSpec(
            taints=tuple(dict.fromkeys(taint for part in parts.values() for taint in part.nodes.taints)),
            shutdown_grace_s=min(part.nodes.shutdown_grace_s for part in parts.values()),
            unready_timeout_s=max(part.nodes.unready_timeout_s for part in parts.values()),
        ),
        labels=first.labels,
        parts=parts,
    )


class _Part(msgspec.Struct, frozen=True):
    """One cloud's part of a file, in the form of a separate file."""

    name: str
    data: dict[str, Any]
    own: frozenset[str]
    """The keys of the cloud's entry."""
    clusters: tuple[int, ...]
    offers: tuple[int, ...]
    """Numbers of the part's clusters and offers in the file."""

    def renamed(self, problem: str) -> str:
        """The problem with its path in the whole file."""
        for key, numbers in (("clusters", self.clusters), ("offers", self.offers)):
            for number, original in reversed(list(enumerate(numbers))):
                problem = problem.replace(f"{key}[{number}]", f"{key}[#{original}]")
        problem = problem.replace("[#", "[")
        key = problem.partition(":")[0].partition(".")[0].partition("[")[0]
        return f"{SEVERAL}.{self.name}.{problem}" if key in self.own else problem


def _division(data: Mapping[str, Any]) -> dict[str, _Part]:
    common = {key: value for key, value in data.items() if key not in (SEVERAL, "clusters", "offers")}
    clusters, offers = _listed(data, "clusters"), _listed(data, "offers")
    parts: dict[str, _Part] = {}
    for name, entry in data[SEVERAL].items():
        mine = {number: each for number, each in clusters.items() if each.get("cloud") == name}
        names = {each.get("name") for each in mine.values()}
        wanted = {number: each for number, each in offers.items() if each.get("cluster") in names}
        own = dict(entry) if isinstance(entry, Mapping) else {}
        bare = [{key: value for key, value in each.items() if key != "cloud"} for each in mine.values()]
        whole = {**common, **own, "clusters": bare, "offers": list(wanted.values())}
        parts[str(name)] = _Part(str(name), whole, frozenset(own), tuple(mine), tuple(wanted))
    return parts


def _division_problems(data: Mapping[str, Any]) -> Iterator[Problem]:
    names = [str(name) for name in data[SEVERAL]]
    if "cloud" in data:
        yield "cloud", f"cannot be combined with {SEVERAL}; use one of the two"
    clusters = _listed(data, "clusters")
    first: dict[object, int] = {}
    for number, each in clusters.items():
        if each.get("cloud") not in names:
            yield f"clusters[{number}].cloud", f"must be one of {SEVERAL}: {', '.join(names)}"
        before = first.setdefault(str(each.get("name")), number)
        if before != number:
            yield f"clusters[{number}].name", f"is the same as in clusters[{before}]"
    known = {each.get("name") for each in clusters.values()}
    for number, each in _listed(data, "offers").items():
        if each.get("cluster") not in known:
            yield f"offers[{number}].cluster", f"there is no cluster {each.get('cluster')!r} in this file"


def _shared_places(parts: Mapping[str, Fleet]) -> Iterator[Problem]:
    """Find regions in several clouds. A region identifies its cloud."""
    owner: dict[str, str] = {}
    for name, part in parts.items():
        for region in {region_of(zone) for cluster in part.clusters for zone in cluster.zones}:
            other = owner.setdefault(region, name)
            if other != name:
                yield "clusters", f"both {other} and {name} have the region {region}, but it must be in one cloud"


def _listed(data: Mapping[str, Any], key: str) -> dict[int, Mapping[str, Any]]:
    found: Sequence[Any] = data.get(key) or ()
    return {number: each for number, each in enumerate(found) if isinstance(each, Mapping)}


# Problems that concern several keys


def _contradictions(fleet: Fleet) -> list[Problem]:
    return [*_clusters(fleet), *_offers(fleet), *_labels(fleet)]


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
            yield f"{path}.zones[{number}]", f"is {zone}, but all nodes of a cluster must be in its region, {region}"
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
            text = f"is {offer.zone}, which is not a zone of {cluster.name}: {', '.join(cluster.zones)}"
            yield f"{path}.zone", text
        if offer.accelerator is None and offer.per_node is not None:
            yield f"{path}.per_node", f"is {offer.per_node}, but the offer has no accelerator"
    yield from _twice("offers", fleet.offers, _kind, "")


def _kind(offer: OfferSpec) -> tuple[object, ...]:
    return offer.cluster, offer.zone, offer.machine_type, offer.accelerator, offer.per_node or 1, offer.spot


def _labels(fleet: Fleet) -> Iterator[Problem]:
    for key in fleet.labels:
        if key.startswith(OUR_PREFIX):
            yield f"labels.{key}", f"begins with '{OUR_PREFIX}', which is reserved for Tradewind's own labels"


def _twice(path: str, items: Sequence[T], key: Callable[[T], object], field: str) -> Iterator[Problem]:
    first: dict[object, int] = {}
    for index, item in enumerate(items):
        before = first.setdefault(key(item), index)
        if before != index:
            where = f"{path}[{index}].{field}" if field else f"{path}[{index}]"
            yield where, f"is the same as in {path}[{before}]" if field else f"is the same as {path}[{before}]"
