"""What the bootstrap has to know of the fleet and of one cluster of it."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta, Struct

from messages.ids import ClusterName, Name

Quantity = Annotated[str, Meta(pattern=r"^\d+(\.\d+)?(m|[kMGT]i?)?$", description="a quantity such as 100m or 256Mi")]
Seconds = Annotated[float, Meta(gt=0, le=3600)]


class BootstrapSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same for all clusters of a fleet."""

    fleet: Name
    image: Annotated[str, Meta(min_length=1, max_length=500)]
    """Ours, for every role; it must be where the nodes can pull it from."""
    namespace: Name = "tradewind"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[Name, ...] = ()
    """Secrets of the namespace with which the nodes pull the image."""
    node_taints: tuple[str, ...] = ()
    """Taints that the fleet gives its nodes, as kubectl writes them: workers tolerate them."""
    shutdown_grace_s: Annotated[int, Meta(ge=30, le=3600)] = 30
    """Seconds from the notice of a preemption to the end of the machine."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    controller_cpu: Quantity = "100m"
    controller_memory: Quantity = "256Mi"
    controller_memory_limit: Quantity = "1Gi"
    call_s: Seconds = 15.0
    """How long one call to a cluster's API may take."""
    pause_first_s: Seconds = 0.5
    pause_most_s: Seconds = 30.0
    """What could not be installed is tried again after a pause that grows from the first to the most."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What must not appear in a log, a listing or a manifest that is no Secret."""

    nats_url: str = field(repr=False)
    """As pods of the cluster reach the bus; it may hold a password."""
    nats_credentials: str = field(default="", repr=False)
    """The content of a NATS credentials file, where the server asks for one."""


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster that the manifests are for."""

    cluster: ClusterName
    region: str = ""
    cloud: str = ""
    """The kind of its cloud; the agents' default if empty."""
