"""The keys of a fleet file that only GKE has, their checks, and the settings that they become."""

import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from controlplane.catalog.places import region_of
from controlplane.clouds.gke.settings import ENVIRONMENT_PREFIX, ClusterConfig, GkeConfig, GkeSettings, NodeConfig
from controlplane.clouds.spec import (
    CloudSpec,
    ClusterSpec,
    Fleet,
    NodeSpec,
    OfferSpec,
    ResourceName,
    SystemPool,
)
from messages.ids import ClusterName
from runtime.settings import read_settings

GOOGLE = GkeSettings(project="-")
"""The endpoints of Google itself."""

Location = Annotated[
    str, Meta(pattern=r"^[a-z]+-[a-z]+\d+(-[a-z])?\Z", description="a region or a zone, such as us-central1-a")
]
Region = Annotated[str, Meta(pattern=r"^[a-z]+-[a-z]+\d+\Z", description="a region, such as us-central1")]
Zone = Annotated[str, Meta(pattern=r"^[a-z]+-[a-z]+\d+-[a-z]\Z", description="a zone, such as us-central1-a")]
MachineType = Annotated[
    str, Meta(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)+\Z", description="a machine type, such as g2-standard-8")
]
Accelerator = Annotated[
    str, Meta(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*\Z", description="an accelerator's name, such as nvidia-l4")
]
NetworkName = Annotated[
    str, Meta(pattern=r"^[a-zA-Z0-9/._:-]{1,300}\Z", description="a name, or projects/<host project>/…")
]
Endpoint = Annotated[str, Meta(pattern=r"^[A-Za-z0-9.-]+:\d{1,5}\Z", description="host:port")]
FilePath = Annotated[str, Meta(pattern=r"^[^\0]+\Z", description="the path of a file")]
Url = Annotated[str, Meta(pattern=r"^https?://[^\s/]+(/\S*)?\Z", description="http://… or https://…")]
Email = Annotated[str, Meta(pattern=r"^[^\s@]+@[^\s@]+\Z", description="a service account's e-mail address")]
Cidr = Annotated[str, Meta(pattern=r"^[0-9a-fA-F.:]+/\d{1,3}\Z", description="a CIDR block, such as 203.0.113.0/24")]
DiskGb = Annotated[int, Meta(ge=10, le=65_536)]

Problem = tuple[str, str]

SHUTDOWN_GRACES_S = (30, 120)
NOT_YET = {
    "compact_placement": "leave it out, and use machine types with more GPUs if ranks must be close to each other",
    "flex_start": "leave it out, and list more zones or `spot: false` offers: the next offer is tried at once",
    "queued_provisioning": "leave it out, and list more zones or `spot: false` offers: the next offer is tried at once",
    "reservation": "leave it out, and use `spot: false` for machines that are not preempted",
}
"""Keys of an offer that GKE supports and Tradewind does not support yet, with what to use instead."""


class Endpoints(Struct, frozen=True, forbid_unknown_fields=True):
    """Google's endpoints, unless the file names those of a stand-in."""

    gke: Endpoint = GOOGLE.endpoint
    insecure: bool = False
    compute: Url = GOOGLE.compute_url
    market: Url | None = None
    """The page with current prices; None: the price list applies."""


class GkeCloudSpec(CloudSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Literal["gke"]
    project: Annotated[str, Meta(pattern=r"^[a-z0-9.:-]{1,100}\Z", description="the project's id, not its name")]
    credentials: FilePath | None = None
    """A file; a relative path starts at the folder of the fleet file."""
    endpoints: Endpoints = Endpoints()


class GkeClusterSpec(ClusterSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    location: Location
    zones: Annotated[tuple[Zone, ...], Meta(min_length=1, max_length=20)]
    region: Region | None = None
    subnetwork: NetworkName | None = None
    pod_range: str | None = None
    service_range: str | None = None


class Disk(Struct, frozen=True, forbid_unknown_fields=True):
    size_gb: DiskGb = 100
    type: Literal["pd-balanced", "pd-ssd", "pd-standard", "hyperdisk-balanced"] = "pd-balanced"


class GkeSystemPool(SystemPool, frozen=True, kw_only=True, forbid_unknown_fields=True):
    machine_type: MachineType = "e2-standard-4"
    disk: Disk = Disk(size_gb=50)


class GkeNodeSpec(NodeSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    disk: Disk = Disk()
    tags: tuple[ResourceName, ...] = ()
    driver: Literal["default", "latest", "disabled"] = "default"
    workload_identity: bool = True
    service_account: Email | None = None
    private: bool = False
    image_streaming: bool = False


class GkeOfferSpec(OfferSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    zone: Zone
    machine_type: MachineType
    accelerator: Accelerator | None = None
    compact_placement: object = None
    flex_start: object = None
    queued_provisioning: object = None
    reservation: object = None
    """These four keys exist to be refused with an explanation, unless they are false: see `NOT_YET`."""


class GkeFleet(Fleet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cloud: GkeCloudSpec
    clusters: Annotated[tuple[GkeClusterSpec, ...], Meta(min_length=1, max_length=100)]
    offers: Annotated[tuple[GkeOfferSpec, ...], Meta(min_length=1, max_length=1000)]
    network: NetworkName = "default"
    subnetwork: NetworkName = "default"
    release_channel: Literal["rapid", "regular", "stable", "extended"] = "regular"
    system_pool: GkeSystemPool = GkeSystemPool()
    nodes: GkeNodeSpec = GkeNodeSpec()
    authorized_networks: Annotated[tuple[Cidr, ...], Meta(max_length=50)] = ()
    """CIDR blocks that may reach the Kubernetes API of each cluster; empty: any address."""


def gke_settings(fleet: GkeFleet, environ: Mapping[str, str]) -> GkeSettings:
    """The settings of the file and the environment. The environment overrides the file."""
    cloud = fleet.cloud
    given: dict[str, object] = {
        "project": cloud.project,
        "endpoint": cloud.endpoints.gke,
        "insecure": cloud.endpoints.insecure,
        "compute_url": cloud.endpoints.compute,
        "market_url": cloud.endpoints.market or "",
        "credentials_file": cloud.credentials,
        "locations": tuple(dict.fromkeys(cluster.location for cluster in fleet.clusters)),
    }
    flags = {name: value for name, value in given.items() if not environ.get(f"{ENVIRONMENT_PREFIX}{name.upper()}")}
    return read_settings(GkeSettings, environ, flags, ENVIRONMENT_PREFIX)


def gke_config(fleet: GkeFleet) -> GkeConfig:
    nodes, disk = fleet.nodes, fleet.system_pool.disk
    return GkeConfig(
        nodes=NodeConfig(
            disk_gb=nodes.disk.size_gb,
            disk_type=nodes.disk.type,
            driver=nodes.driver,
            workload_identity=nodes.workload_identity,
            tags=nodes.tags,
            service_account=nodes.service_account,
            private=nodes.private,
            image_streaming=nodes.image_streaming,
        ),
        system_disk_gb=disk.size_gb,
        system_disk_type=disk.type,
        clusters={ClusterName(cluster.name): _cluster_config(fleet, cluster) for cluster in fleet.clusters},
    )


def _cluster_config(fleet: GkeFleet, cluster: GkeClusterSpec) -> ClusterConfig:
    return ClusterConfig(
        network=fleet.network,
        subnetwork=cluster.subnetwork or fleet.subnetwork,
        release_channel=fleet.release_channel,
        pod_range=cluster.pod_range,
        service_range=cluster.service_range,
        authorized_networks=fleet.authorized_networks,
    )


def problems(fleet: GkeFleet) -> list[Problem]:
    """Problems that decoding does not find: the path in the file and what is wrong."""
    return [
        *_cloud(fleet.cloud),
        *_pod_ranges(fleet),
        *_authorized_networks(fleet),
        *_nodes(fleet),
        *_unsupported(fleet),
    ]


def _cloud(cloud: GkeCloudSpec) -> Iterator[Problem]:
    endpoints = cloud.endpoints
    if endpoints.insecure and endpoints.gke == GOOGLE.endpoint:
        yield "cloud.endpoints.insecure", "would send access tokens to Google without encryption; leave it out"
    for name, url in (
        ("gke", f"//{endpoints.gke}"),
        ("compute", endpoints.compute),
        ("market", endpoints.market),
    ):
        if url is not None and not _has_host_and_port(url):
            yield f"cloud.endpoints.{name}", f"is {url.removeprefix('//')}, which is not a valid host and port"
    if cloud.credentials is not None and not _has_home(cloud.credentials):
        yield "cloud.credentials", f"is {cloud.credentials}, but this machine has no such user"


def _nodes(fleet: GkeFleet) -> Iterator[Problem]:
    grace_s = fleet.nodes.shutdown_grace_s
    if grace_s == 0:
        why = "is 0: a preempted node would end its workers before they leave the world"
        yield "nodes.shutdown_grace_s", f"{why}; use 30, which every GKE version supports, or 120"
    elif grace_s not in SHUTDOWN_GRACES_S:
        yield "nodes.shutdown_grace_s", f"is {grace_s}, but must be 30 or 120"


def _has_host_and_port(url: str) -> bool:
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


def _pod_ranges(fleet: GkeFleet) -> Iterator[Problem]:
    """Find clusters that share a range of pod addresses. Ranks reach each other by these addresses."""
    first: dict[tuple[str, str, str], str] = {}
    for index, cluster in enumerate(fleet.clusters):
        if cluster.pod_range is None:
            continue
        key = (region_of(cluster.location), cluster.subnetwork or fleet.subnetwork, cluster.pod_range)
        other = first.setdefault(key, cluster.name)
        if other != cluster.name:
            text = f"is {cluster.pod_range} of {key[1]}, which {other} uses; give each cluster a separate range"
            yield f"clusters[{index}].pod_range", text


def _authorized_networks(fleet: GkeFleet) -> Iterator[Problem]:
    for index, block in enumerate(fleet.authorized_networks):
        problem = _block_problem(block)
        if problem:
            yield f"authorized_networks[{index}]", f"{block!r} is not a CIDR block: {problem}"


def _block_problem(block: str) -> str:
    """The reason why a text is not a CIDR block; empty if it is one."""
    address, _, prefix = block.partition("/")
    try:
        longest = ipaddress.ip_address(address).max_prefixlen
    except ValueError:
        return f"{address} is not an IP address"
    if int(prefix) > longest:
        return f"the prefix length must be from 0 to {longest}"
    try:
        ipaddress.ip_network(block)
    except ValueError:
        return f"did you mean {ipaddress.ip_network(block, strict=False)}?"
    return ""


def _unsupported(fleet: GkeFleet) -> Iterator[Problem]:
    for index, offer in enumerate(fleet.offers):
        for key, instead in NOT_YET.items():
            if getattr(offer, key) not in (None, False):
                yield f"offers[{index}].{key}", f"is not supported yet; {instead}"
