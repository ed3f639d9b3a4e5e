"""The keys of `fleet.yaml` that all clouds have in common.

Each provider adds its own keys in a subclass of `Fleet`. Every key is described in docs/fleet.md.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from messages.ids import Name

ResourceName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z",
        description="at most 40 lower-case letters, digits and '-', with a letter first",
    ),
]
PlaceName = Annotated[
    str, Meta(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*\Z", description="the name of a region or a zone")
]
TypeName = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9._-]*\Z", description="a name as the cloud writes it")]
LabelKey = Annotated[
    str, Meta(pattern=r"^[a-z]([a-z0-9_-]{0,61}[a-z0-9])?\Z", description="lower-case letters, digits, '_' and '-'")
]
LabelValue = Annotated[
    str,
    Meta(pattern=r"^([a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?)?\Z", description="lower-case letters, digits, '_' and '-'"),
]
Image = Annotated[str, Meta(pattern=r"^\S{1,500}\Z", description="an image, such as registry/tradewind:1.0")]
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
Nodes = Annotated[int, Meta(ge=1, le=1000)]


class CloudSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: str
    """The name of a provider, equal to the name of its folder."""


class ClusterSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: ResourceName
    location: PlaceName
    zones: Annotated[tuple[PlaceName, ...], Meta(min_length=1, max_length=20)]
    """The zones in which its pools may be; the first has the system pool."""
    region: PlaceName | None = None
    """The region; None: derived from the location."""


class SystemPool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    machine_type: TypeName
    size: Annotated[int, Meta(ge=1, le=20)] = 1


class TaintSpec(Struct, frozen=True, forbid_unknown_fields=True):
    key: TaintKey
    value: TaintValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodeSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the nodes in the pools of all jobs."""

    taints: tuple[TaintSpec, ...] = ()
    shutdown_grace_s: int = 30
    unready_timeout_s: Annotated[float, Meta(ge=10, le=86_400)] = 900.0
    """Seconds after which a node that is not ready, and is replaced, is removed."""


class OfferSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: ResourceName
    zone: PlaceName
    machine_type: TypeName
    max_nodes: Nodes
    accelerator: TypeName | None = None
    per_node: Annotated[int, Meta(ge=1, le=64)] | None = None
    spot: bool = True


class PodSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of Tradewind's pods: cluster-controller, notice watcher and worker-agents."""

    image: Image
    namespace: Name = "tradewind"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[Name, ...] = ()


class Fleet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fleet in one cloud."""

    name: ResourceName
    cloud: CloudSpec
    clusters: Annotated[tuple[ClusterSpec, ...], Meta(min_length=1, max_length=100)]
    offers: Annotated[tuple[OfferSpec, ...], Meta(min_length=1, max_length=1000)]
    """Offers in order of preference."""
    pods: PodSpec
    system_pool: SystemPool
    nodes: NodeSpec = NodeSpec()
    labels: dict[LabelKey, LabelValue] = field(default_factory=dict)


class FleetOfSeveralClouds(Fleet, frozen=True, kw_only=True):
    """The fleet of a file with `clouds:`; it has the clusters and offers of all clouds in the file's order."""

    parts: Mapping[str, Fleet]
    """The part in each cloud as a separate fleet, by the cloud's name in the file."""


def parts_of(fleet: Fleet) -> Mapping[str, Fleet]:
    """Each cloud's part of the fleet by the cloud's name. A fleet in one cloud is its own only part."""
    return fleet.parts if isinstance(fleet, FleetOfSeveralClouds) else {fleet.cloud.kind: fleet}
