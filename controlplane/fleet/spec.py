"""`fleet.yaml` as its owner writes it. Every key is described in docs/fleet.md; nothing here is known to the code."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from controlplane.clouds.gke.settings import GkeSettings
from messages.ids import Name

GOOGLE = GkeSettings(project="-")
"""Where Google itself is."""

ResourceName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z",
        description="lower-case letters, digits and '-', beginning with a letter, at most 40",
    ),
]
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
LabelKey = Annotated[
    str, Meta(pattern=r"^[a-z]([a-z0-9_-]{0,61}[a-z0-9])?\Z", description="lower-case letters, digits, '_' and '-'")
]
LabelValue = Annotated[
    str,
    Meta(pattern=r"^([a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?)?\Z", description="lower-case letters, digits, '_' and '-'"),
]
Endpoint = Annotated[str, Meta(pattern=r"^[A-Za-z0-9.-]+:\d{1,5}\Z", description="host:port")]
FilePath = Annotated[str, Meta(pattern=r"^[^\0]+\Z", description="the path of a file")]
Url = Annotated[str, Meta(pattern=r"^https?://[^\s/]+(/\S*)?\Z", description="http://… or https://…")]
Image = Annotated[str, Meta(pattern=r"^\S{1,500}\Z", description="an image, such as registry/tradewind:1.0")]
Email = Annotated[str, Meta(pattern=r"^[^\s@]+@[^\s@]+\Z", description="a service account's e-mail address")]
Cidr = Annotated[str, Meta(pattern=r"^[0-9a-fA-F.:]+/\d{1,3}\Z", description="a CIDR block, such as 203.0.113.0/24")]
TaintKey = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z",
        description="a taint's key as Kubernetes has it, such as dedicated or example.com/team",
    ),
]
TaintValue = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z",
        description="letters, digits, '.', '_' and '-', at most 63, with a letter or digit first and last",
    ),
]
DiskGb = Annotated[int, Meta(ge=10, le=65_536)]
Nodes = Annotated[int, Meta(ge=1, le=1000)]


class Endpoints(Struct, frozen=True, forbid_unknown_fields=True):
    """Google's own, unless a stand-in answers."""

    gke: Endpoint = GOOGLE.endpoint
    insecure: bool = False
    compute: Url = GOOGLE.compute_url
    market: Url | None = None
    """Where prices of the moment are told, if they are not those of a list."""


class CloudSpec(Struct, frozen=True, forbid_unknown_fields=True):
    kind: Literal["gke"]
    project: Annotated[str, Meta(pattern=r"^[a-z0-9.:-]{1,100}\Z", description="the project's id, not its name")]
    credentials: FilePath | None = None
    """A file, from the folder of the fleet file if it is relative."""
    endpoints: Endpoints = Endpoints()


class ClusterSpec(Struct, frozen=True, forbid_unknown_fields=True):
    name: ResourceName
    location: Location
    zones: Annotated[tuple[Zone, ...], Meta(min_length=1, max_length=20)]
    """Where its pools may be; the first one has the system pool."""
    region: Region | None = None
    """What the location says, unless given."""
    subnetwork: NetworkName | None = None
    pod_range: str | None = None
    service_range: str | None = None


class Disk(Struct, frozen=True, forbid_unknown_fields=True):
    size_gb: DiskGb = 100
    type: Literal["pd-balanced", "pd-ssd", "pd-standard", "hyperdisk-balanced"] = "pd-balanced"


class SystemPool(Struct, frozen=True, forbid_unknown_fields=True):
    machine_type: MachineType = "e2-standard-4"
    size: Annotated[int, Meta(ge=1, le=20)] = 1
    disk: Disk = Disk(size_gb=50)


class TaintSpec(Struct, frozen=True, forbid_unknown_fields=True):
    key: TaintKey
    value: TaintValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodeSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What the nodes of every job's pools have in common."""

    disk: Disk = Disk()
    tags: tuple[ResourceName, ...] = ()
    taints: tuple[TaintSpec, ...] = ()
    driver: Literal["default", "latest", "disabled"] = "default"
    workload_identity: bool = True
    shutdown_grace_s: int = 30
    service_account: Email | None = None
    private: bool = False
    image_streaming: bool = False
    unready_timeout_s: Annotated[float, Meta(ge=10, le=86_400)] = 900.0
    """How long a node that is not ready, and is replaced, is kept."""


class OfferSpec(Struct, frozen=True, forbid_unknown_fields=True):
    cluster: ResourceName
    zone: Zone
    machine_type: MachineType
    max_nodes: Nodes
    accelerator: Accelerator | None = None
    per_node: Annotated[int, Meta(ge=1, le=64)] | None = None
    spot: bool = True
    compact_placement: object = None
    flex_start: object = None
    queued_provisioning: object = None
    reservation: object = None
    """These four are known in order to be refused with a reason, unless they are false: see `checks`."""


class PodSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Our own pods: the cluster-controller, the notice watcher, the workers' agents."""

    image: Image
    namespace: Name = "tradewind"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[Name, ...] = ()


class Fleet(Struct, frozen=True, forbid_unknown_fields=True):
    name: ResourceName
    cloud: CloudSpec
    clusters: Annotated[tuple[ClusterSpec, ...], Meta(min_length=1, max_length=100)]
    offers: Annotated[tuple[OfferSpec, ...], Meta(min_length=1, max_length=1000)]
    """Most wanted first."""
    pods: PodSpec
    network: NetworkName = "default"
    subnetwork: NetworkName = "default"
    release_channel: Literal["rapid", "regular", "stable", "extended"] = "regular"
    system_pool: SystemPool = SystemPool()
    nodes: NodeSpec = NodeSpec()
    authorized_networks: Annotated[tuple[Cidr, ...], Meta(max_length=50)] = ()
    """From where the Kubernetes API of each cluster may be reached; empty: from anywhere."""
    labels: dict[LabelKey, LabelValue] = field(default_factory=dict)
