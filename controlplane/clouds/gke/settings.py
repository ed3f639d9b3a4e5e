"""Where Google is, as whom we speak to it, and how patient we are. Only endpoints differ for a stand-in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta, Struct

from controlplane.clouds.interface import SYSTEM_POOL
from messages.ids import ClusterName

ENVIRONMENT_PREFIX = "TRADEWIND_GKE_"

Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class GkeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All but the locations can be set by the environment too: `TRADEWIND_GKE_PROJECT` and so on."""

    project: Annotated[str, Meta(min_length=1, max_length=100)]
    endpoint: str = "container.googleapis.com:443"
    """host:port of GKE's gRPC API."""
    insecure: bool = False
    """Without TLS: for a stand-in on this machine or in a private network only."""
    compute_url: str = "https://compute.googleapis.com/compute/v1"
    market_url: str = ""
    """Where prices of the moment are told; empty where they are those of Google's list."""
    credentials_file: str | None = None
    """A service account's key or a user's stored credentials; without, Google's application default credentials."""
    locations: tuple[str, ...] = ()
    """Where our clusters are: others elsewhere, or that Google cannot list now, do not concern us. Empty: anywhere."""

    call_s: Seconds = 30.0
    """How long one call may take."""
    read_s: Seconds = 20.0
    """How long a read is tried again while nobody answers."""
    lost_s: Seconds = 60.0
    """How long an operation is asked after while nobody answers."""
    operation_s: Seconds = 3600.0
    """How long an operation may take; GKE itself gives up after about 40 minutes."""
    nodes_s: Seconds = 600.0
    """How long a pool may take to get the nodes it was made or resized for. GKE goes on for much longer where there are
    none, and tells a stockout late: who needs them looks elsewhere by then."""
    poll_first_s: Seconds = 0.25
    poll_most_s: Seconds = 5.0
    """The pause between two questions after an operation grows from the first to the most."""
    errors_first_s: Seconds = 2.0
    errors_most_s: Seconds = 5.0
    """While nodes are awaited, the pause between two looks at what Compute refuses grows from the first to the most."""
    turn_s: Seconds = 15.0
    """How long an operation waits for others on its pool, or for too many in its cluster, to end."""
    operations_per_cluster: Annotated[int, Meta(ge=1, le=100)] = 4
    """GKE refuses more than about five at once."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What the nodes of all pools have in common."""

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
