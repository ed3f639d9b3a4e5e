"""Settings of GKE: endpoints, credentials and timeouts. For a stand-in only the endpoints differ."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta, Struct

from controlplane.clouds.interface import SYSTEM_POOL
from messages.ids import ClusterName

ENVIRONMENT_PREFIX = "TRADEWIND_GKE_"

Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class GkeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the client. The environment can set all but the locations, such as `TRADEWIND_GKE_PROJECT`."""

    project: Annotated[str, Meta(min_length=1, max_length=100)]
    endpoint: str = "container.googleapis.com:443"
    """host:port of GKE's gRPC API."""
    insecure: bool = False
    """Connect without TLS; only for a stand-in on this machine or in a private network."""
    compute_url: str = "https://compute.googleapis.com/compute/v1"
    market_url: str = ""
    """The page with current prices; empty: Google's price list applies."""
    credentials_file: str | None = None
    """A service account's key or a user's stored credentials; None: Google's application default credentials."""
    locations: tuple[str, ...] = ()
    """Locations of the fleet's clusters; empty: all. A listing does not need answers from other locations."""

    call_s: Seconds = 30.0
    """Seconds that one call may take."""
    read_s: Seconds = 20.0
    """Seconds for which a read without an answer is retried."""
    lost_s: Seconds = 60.0
    """Seconds for which an operation is polled without an answer."""
    operation_s: Seconds = 3600.0
    """Seconds that an operation may take. GKE's own limit is about 40 minutes."""
    nodes_s: Seconds = 600.0
    """Seconds that a pool may take to get its nodes. In a stockout GKE retries for much longer before it reports one;
    the allocator then uses another zone."""
    poll_first_s: Seconds = 0.25
    poll_most_s: Seconds = 5.0
    """The pause between two polls of an operation grows from `poll_first_s` to `poll_most_s`."""
    errors_first_s: Seconds = 2.0
    errors_most_s: Seconds = 5.0
    """The pause between two reads of refused nodes grows from `errors_first_s` to `errors_most_s`."""
    turn_s: Seconds = 15.0
    """Seconds for which an operation waits for other operations on its pool or in its cluster."""
    operations_per_cluster: Annotated[int, Meta(ge=1, le=100)] = 4
    """GKE refuses more than about five at once."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings of the nodes of all pools."""

    disk_gb: int = 100
    disk_type: str = "pd-balanced"
    driver: str = "default"
    """GPU driver installation: `default`, `latest` or `disabled`."""
    workload_identity: bool = True
    tags: tuple[str, ...] = ()
    service_account: str | None = None
    private: bool = False
    """Nodes have no external address."""
    image_streaming: bool = False
    """Containers start before their image is pulled completely."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    network: str = "default"
    subnetwork: str = "default"
    release_channel: str = "regular"
    pod_range: str | None = None
    service_range: str | None = None
    authorized_networks: tuple[str, ...] = ()
    """CIDR blocks from which the Kubernetes API may be reached; empty: from anywhere."""


@dataclass(frozen=True, slots=True)
class GkeConfig:
    """Settings for new clusters and pools that only this provider has."""

    nodes: NodeConfig = NodeConfig()
    system_disk_gb: int = 50
    system_disk_type: str = "pd-balanced"
    clusters: Mapping[ClusterName, ClusterConfig] = field(default_factory=dict)

    def disk_of(self, pool: str) -> tuple[str, int]:
        """Type and GB of the disks of a pool's nodes."""
        if pool == SYSTEM_POOL:
            return self.system_disk_type, self.system_disk_gb
        return self.nodes.disk_type, self.nodes.disk_gb

    def cluster(self, name: ClusterName) -> ClusterConfig:
        return self.clusters.get(name, ClusterConfig())
