"""Settings of a region, and what the cloud asks of it."""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from simulator.kubelet.images import DEFAULT_ACCOUNT, ImageRuntime
from simulator.kubernetes.gate import Cut

Seconds = Annotated[float, Meta(ge=0, le=86400)]
NotNothing = Annotated[float, Meta(gt=0, le=86400)]
Name = Annotated[str, Meta(pattern="^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", description="a lower-case name")]


class RegionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`SIMULATOR_REGION` and so on."""

    region: Name = "us-central1"
    secret: str = "simulated"
    """Shared with the cloud, whose tokens it signs."""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """0: any that is free."""
    advertise_url: str = ""
    """Where others reach this region, when that is not its host and port."""
    run_dir: str = ""
    """Folders and logs of pods; kept when it is named, else a temporary one. Short: Unix sockets have short names."""
    pod_ip: str = ""
    """The address of all pods, or a name that has it; empty: a loopback address for each."""
    images: dict[str, ImageRuntime] = field(default_factory=dict)
    """By a pattern of the image's name; an image that is not named runs in the simulator's own environment."""
    roleless_accounts: str = ""
    """Service accounts of nodes that cannot pull from Google's registries, with commas between."""
    pull_backoff_s: NotNothing = 10.0
    pull_backoff_most_s: NotNothing = 300.0
    token_s: NotNothing = 3600.0
    """How long tokens of service accounts are good for."""
    crash_backoff_s: Seconds = 10.0
    crash_backoff_most_s: Seconds = 300.0
    toleration_s: Annotated[int, Meta(ge=0)] = 300
    """How long pods stay on a node that is not ready, unless they say otherwise."""
    node_monitor_s: Seconds = 1.0
    """How long it takes until a node that was lost without a word is known to be."""
    bookmark_s: NotNothing = 60.0
    history_limit: Annotated[int, Meta(ge=1)] = 2000
    """Changes of each kind that a watch can catch up with."""
    gone_as_status: bool = False
    """Watches from too old a version are refused with HTTP 410, not with an error event."""
    enforce_rbac: bool = True
    stop_grace_s: Seconds = 2.0
    """What pods are given when the simulator itself ends."""


class ClusterRequest(Struct, frozen=True, kw_only=True):
    project: str = "simulated"
    location: str = ""
    token_seconds: NotNothing | None = None
    authorized_networks: list[str] | None = None
    """Clients from elsewhere are refused, except for pods of the cluster; null: all are accepted."""
    controllers: bool = True
    """Without them it is a bare API server: nothing places or makes pods, and whoever tests plays those parts."""


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
    """0: lost at once, without a word."""
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
    """None: all."""
    how: Cut = Cut.RESET


class RolesRequest(Struct, frozen=True, kw_only=True):
    """Whether the service account of nodes has the roles that pulls from Google's registries need."""

    account: str
    granted: bool


class CompactRequest(Struct, frozen=True, kw_only=True):
    expire_watches: bool = False


class ClusterView(Struct, frozen=True, kw_only=True):
    endpoint: str
    ca: str
    address: str
    """Host and port of the same API without a path before it."""
    uid: str


class NodeView(Struct, frozen=True, kw_only=True):
    name: str
    uid: str
    instance_id: str
    zone: str
    state: str
    metadata_host: str
    pods: list[dict[str, Any]]
