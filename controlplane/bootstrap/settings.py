"""Settings of the installation: of the whole fleet and of one cluster."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta, Struct

from messages.ids import ClusterName, Name

Quantity = Annotated[str, Meta(pattern=r"^\d+(\.\d+)?(m|[kMGT]i?)?$", description="a quantity such as 100m or 256Mi")]
Seconds = Annotated[float, Meta(gt=0, le=3600)]


class BootstrapSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that all clusters of a fleet share."""

    fleet: Name
    image: Annotated[str, Meta(min_length=1, max_length=500)]
    """Tradewind's image for all roles, in a registry that the nodes can pull from."""
    namespace: Name = "tradewind"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[Name, ...] = ()
    """Secrets of the namespace with which the nodes pull the image."""
    node_taints: tuple[str, ...] = ()
    """Taints of the fleet's nodes in kubectl's notation; workers tolerate them."""
    shutdown_grace_s: Annotated[int, Meta(ge=30, le=3600)] = 30
    """Seconds from the notice of a preemption to the end of the machine."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    controller_cpu: Quantity = "100m"
    controller_memory: Quantity = "256Mi"
    controller_memory_limit: Quantity = "1Gi"
    call_s: Seconds = 15.0
    """Seconds that one call to a cluster's API may take."""
    pause_first_s: Seconds = 0.5
    pause_most_s: Seconds = 30.0
    """The pause before a failed installation is retried grows from `pause_first_s` to `pause_most_s`."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Values that must not appear in a log, a listing or a manifest other than a Secret."""

    nats_url: str = field(repr=False)
    """The URL at which the cluster's pods reach the bus; it may contain a password."""
    nats_credentials: str = field(default="", repr=False)
    """The content of a NATS credentials file, if the server requires one."""


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster that the manifests are for."""

    cluster: ClusterName
    region: str = ""
    cloud: str = ""
    """The kind of its cloud; the agents' default if empty."""
