"""Settings of a region, and the bodies of the cloud's requests and answers."""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from simulator.accounts import DEFAULT_ACCOUNT
from simulator.kubelet.images import ImageRuntime
from simulator.kubernetes.gate import Cut

Seconds = Annotated[float, Meta(ge=0, le=86400)]
NotNothing = Annotated[float, Meta(gt=0, le=86400)]
Name = Annotated[str, Meta(pattern="^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", description="a lower-case name")]


class RegionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a region; each is a variable `TRADEWIND_SIMULATOR_REGION_<NAME>`."""

    region: Name = "us-central1"
    secret: str = "simulated"
    """Secret that signs tokens; the cloud needs the same one."""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """0: any free port."""
    advertise_url: str = ""
    """URL at which others reach this region, if not host and port."""
    run_dir: str = ""
    """Folder for files and logs of pods; by default a temporary one. Unix sockets need a short path."""
    pod_ip: str = ""
    """Address of all pods, or a name that resolves to it; empty: a loopback address for each."""
    images: dict[str, ImageRuntime] = field(default_factory=dict)
    """Runtimes by a pattern of the image's name; other images run in the simulator's own environment."""
    roleless_accounts: str = ""
    """Comma-separated service accounts of nodes that cannot pull from Google's registries."""
    pull_backoff_s: NotNothing = 10.0
    pull_backoff_most_s: NotNothing = 300.0
    token_s: NotNothing = 3600.0
    """Lifetime in seconds of tokens of service accounts."""
    crash_backoff_s: Seconds = 10.0
    crash_backoff_most_s: Seconds = 300.0
    toleration_s: Annotated[int, Meta(ge=0)] = 300
    """Default seconds that pods stay on a node that is not ready."""
    node_monitor_s: Seconds = 1.0
    """Seconds until a node that was lost without notice is marked as not ready."""
    bookmark_s: NotNothing = 60.0
    history_limit: Annotated[int, Meta(ge=1)] = 2000
    """Stored changes of each kind, which a watch can catch up with."""
    gone_as_status: bool = False
    """Refuse watches from a version that is too old with HTTP 410, not with an error event."""
    enforce_rbac: bool = True
    stop_grace_s: Seconds = 2.0
    """Grace period of pods when the simulator itself ends."""


class ClusterRequest(Struct, frozen=True, kw_only=True):
    project: str = "simulated"
    location: str = ""
    token_seconds: NotNothing | None = None
    authorized_networks: list[str] | None = None
    """Networks of allowed clients; pods of the cluster are always allowed. Null: all are allowed."""
    controllers: bool = True
    """False: a bare API server. Nothing places or creates pods; a test does it."""


class Taint(Struct, frozen=True, kw_only=True):
    key: str
    effect: str
    value: str | None = None


class NodeRequest(Struct, frozen=True, kw_only=True):
    instance_id: str
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[Taint] = field(default_factory=list)
    capacity: dict[str, str] = field(default_factory=dict)
    zone: str = ""
    provider_id: str = ""
    shutdown_grace_s: Seconds = 30.0
    annotations: dict[str, str] = field(default_factory=dict)
    service_account: str = DEFAULT_ACCOUNT


class PreemptRequest(Struct, frozen=True, kw_only=True):
    notice_s: Seconds = 30.0
    """0: the node is lost at once, without notice."""
    delete_node: bool = False


class SilenceRequest(Struct, frozen=True, kw_only=True):
    silent: bool


class MaintenanceEvent(StrEnum):
    """Values of the metadata key `instance/maintenance-event`."""

    NONE = "NONE"
    MIGRATE = "MIGRATE_ON_HOST_MAINTENANCE"
    TERMINATE = "TERMINATE_ON_HOST_MAINTENANCE"


class MaintenanceRequest(Struct, frozen=True, kw_only=True):
    event: MaintenanceEvent = MaintenanceEvent.TERMINATE


class CutRequest(Struct, frozen=True, kw_only=True):
    cut: bool
    cluster: str | None = None
    """None: all clusters."""
    how: Cut = Cut.RESET


class RolesRequest(Struct, frozen=True, kw_only=True):
    """Grants or revokes the roles that a service account of nodes needs to pull from Google's registries."""

    account: str
    granted: bool


class CompactRequest(Struct, frozen=True, kw_only=True):
    expire_watches: bool = False


class ClusterView(Struct, frozen=True, kw_only=True):
    endpoint: str
    ca: str
    address: str
    """Host and port of the same API without a path prefix."""
    uid: str


class NodeView(Struct, frozen=True, kw_only=True):
    name: str
    uid: str
    instance_id: str
    zone: str
    state: str
    metadata_host: str
    pods: list[dict[str, Any]]
