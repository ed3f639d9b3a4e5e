"""The parts of Kubernetes objects that Tradewind reads. Decoding skips the rest."""

from datetime import datetime
from typing import Protocol

from msgspec import Raw, Struct, field


class Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class Object(Protocol):
    @property
    def metadata(self) -> Metadata: ...


class Condition(Struct, frozen=True, rename="camel"):
    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class Taint(Struct, frozen=True):
    key: str
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool | None = None


class NodeInfo(Struct, frozen=True):
    boot_id: str = field(name="bootID", default="")


class NodeStatus(Struct, frozen=True, rename="camel"):
    conditions: tuple[Condition, ...] | None = None
    node_info: NodeInfo = NodeInfo()


class Node(Struct, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Waiting(Struct, frozen=True):
    reason: str | None = None
    message: str | None = None


class Terminated(Struct, frozen=True, rename="camel"):
    exit_code: int = 0
    signal: int | None = None
    reason: str | None = None
    message: str | None = None


class ContainerState(Struct, frozen=True):
    waiting: Waiting | None = None
    running: dict[str, object] | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    name: str
    image: str = ""
    """While the container waits, the image in the pod's manifest (not verified against Google)."""
    state: ContainerState = ContainerState()


class PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    reason: str | None = None
    message: str | None = None
    conditions: tuple[Condition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Struct, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ListMetadata(Struct, frozen=True, rename={"resource_version": "resourceVersion", "next_page": "continue"}):
    resource_version: str = ""
    next_page: str = ""


class Listing(Struct, frozen=True):
    metadata: ListMetadata
    items: list[Raw] | None = None


class WatchEvent(Struct, frozen=True):
    type: str
    object: Raw


class AnyObject(Struct, frozen=True):
    """An object of any kind, or a bookmark of a watch."""

    metadata: Metadata = field(default_factory=Metadata)


class ErrorStatus(Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
