"""Translation of the fleet file into plans for the cloud, offers for the allocator, and settings of manifests."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from controlplane.allocator.offers import Offer
from controlplane.bootstrap.settings import BootstrapSettings, Place
from controlplane.catalog.places import region_of
from controlplane.catalog.refresh import KnownPrices, PricesOfSeveral
from controlplane.clouds.composite import Clouds
from controlplane.clouds.interface import Cloud, ClusterPlan, MachineInfo, PoolPlan, Taint, system_pool
from controlplane.clouds.providers import provider_of
from controlplane.clouds.spec import ClusterSpec, Fleet, parts_of
from messages.ids import ClusterName
from messages.labels import FLEET_LABEL


def load_providers(fleet: Fleet) -> None:
    """Import the modules of the fleet's clouds before they are needed; blocks."""
    for part in parts_of(fleet).values():
        provider_of(part.cloud.kind).load()


async def open_cloud(fleet: Fleet, environ: Mapping[str, str]) -> Cloud:
    """Create the fleet's cloud without calling it. Raises `UserError` for unusable settings."""
    parts = parts_of(fleet)
    opened = {name: await provider_of(part.cloud.kind).open(part, environ) for name, part in parts.items()}
    if len(opened) == 1:
        return next(iter(opened.values()))
    places = {name: [(ClusterName(each.name), each.zones) for each in part.clusters] for name, part in parts.items()}
    return Clouds(opened, places)


def known_prices(fleet: Fleet, environ: Mapping[str, str], cloud: Cloud) -> KnownPrices:
    """Prices of the fleet's clouds; `cloud` is the result of `open_cloud`. Reads files. Raises `UserError`."""
    found = [
        provider_of(part.cloud.kind).prices(part, environ, cloud.part(name) if isinstance(cloud, Clouds) else cloud)
        for name, part in parts_of(fleet).items()
    ]
    return found[0] if len(found) == 1 else PricesOfSeveral(found)


def pull_hint(fleet: Fleet, environ: Mapping[str, str]) -> Callable[[str], str]:
    """A function that explains how to let the fleet's nodes pull an image; its text is empty for other registries."""
    hints = [provider_of(part.cloud.kind).pull_hint(part, environ) for part in parts_of(fleet).values()]
    return lambda image: next((text for hint in hints if (text := hint(image))), "")


def removal_command(fleet: Fleet, environ: Mapping[str, str], machine: MachineInfo) -> str:
    """The command that removes a machine which is in no pool."""
    part = _part_with(fleet, machine.kind.zone)
    return provider_of(part.cloud.kind).removal_command(part, environ, machine)


def cluster_plans(fleet: Fleet) -> tuple[ClusterPlan, ...]:
    plans = {
        cluster.name: _cluster_plan(part, cluster) for part in parts_of(fleet).values() for cluster in part.clusters
    }
    return tuple(plans[cluster.name] for cluster in fleet.clusters)


def _cluster_plan(part: Fleet, cluster: ClusterSpec) -> ClusterPlan:
    system = system_pool(cluster.zones[0], part.system_pool.machine_type, part.system_pool.size)
    return ClusterPlan(ClusterName(cluster.name), cluster.location, system, _labels(part))


def complete(fleet: Fleet, plan: PoolPlan, lease: Mapping[str, str]) -> PoolPlan:
    """The plan of a pool with the fleet's common node settings and the labels of `lease`."""
    part = _part_with(fleet, plan.kind.zone)
    return replace(
        plan,
        labels={**_labels(part), **plan.labels, **lease},
        taints=(*plan.taints, *(Taint(taint.key, taint.value, taint.effect) for taint in part.nodes.taints)),
        shutdown_grace_s=part.nodes.shutdown_grace_s,
    )


def offers(fleet: Fleet) -> tuple[Offer, ...]:
    """The fleet's offers in order of preference."""
    return tuple(
        Offer(
            cluster=ClusterName(each.cluster),
            zone=each.zone,
            machine_type=each.machine_type,
            max_nodes=each.max_nodes,
            accelerator=each.accelerator,
            accelerators_per_node=(each.per_node or 1) if each.accelerator is not None else 0,
            spot=each.spot,
        )
        for each in fleet.offers
    )


def places(fleet: Fleet) -> tuple[Place, ...]:
    clouds = {cluster.name: part.cloud.kind for part in parts_of(fleet).values() for cluster in part.clusters}
    return tuple(
        Place(ClusterName(cluster.name), cluster.region or region_of(cluster.location), clouds[cluster.name])
        for cluster in fleet.clusters
    )


def bootstrap_settings(fleet: Fleet) -> BootstrapSettings:
    given = {
        "fleet": fleet.name,
        "node_taints": tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in fleet.nodes.taints),
        "shutdown_grace_s": fleet.nodes.shutdown_grace_s,
        **msgspec.structs.asdict(fleet.pods),
    }
    return msgspec.convert(given, BootstrapSettings)


def _part_with(fleet: Fleet, zone: str) -> Fleet:
    """The part of the cloud that has the zone; the first part if the file does not name the zone."""
    parts = list(parts_of(fleet).values())
    return next((part for part in parts if any(zone in cluster.zones for cluster in part.clusters)), parts[0])


def _labels(fleet: Fleet) -> dict[str, str]:
    return {**fleet.labels, FLEET_LABEL: fleet.name}
