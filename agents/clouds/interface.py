"""What agents must know of the cloud that their nodes are in. A second cloud is one more folder beside `gke`.

Pure: cores import this module.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NodeTraits:
    """How the cloud labels, taints, equips and shuts down its nodes."""

    pool_label: str = ""
    """Names the pool of nodes whose pool was made without our own label: by an earlier version, or not by us."""
    spot_labels: tuple[tuple[str, str], ...] = ()
    """Labels with their values. A node with any of them is a spot machine."""
    accelerator_label: str = ""
    """A node with this label has GPUs, whatever its value."""
    going_taints: tuple[str, ...] = ()
    """Keys of taints of a node that will soon be terminated, besides those of Kubernetes itself."""
    driver_folder: str = ""
    """Where the GPU driver of a node is mounted in containers that ask for GPUs; empty where containers find it."""
    system_pods_s: float = 0.0
    """Seconds at the end of a node's shutdown that are reserved for the system's pods."""


@dataclass(frozen=True, slots=True)
class Machine:
    boot_id: str = ""
    """Another after each boot: a notice is for this one only."""
    is_spot: bool = False
    has_gpus: bool = False


@dataclass(frozen=True, slots=True)
class NoticeOptions:
    """What the settings of the notice watcher say about notices."""

    notice_s: float = 30.0
    """Seconds from the announcement of a preemption to the end of the machine."""
    maintenance_s: float | None = None
    """The same for host maintenance; as the cloud documents it if None."""
    metadata_host: str | None = None
    """Host and port of the metadata server; as the cloud documents it if None."""


@dataclass(frozen=True, slots=True)
class Notice:
    remaining_s: float
    """Seconds until the machine ends, from when this was heard."""
    why: str


Tell = Callable[[Notice | None], None]


class NoticeSource(Protocol):
    async def watch(self, tell: Tell) -> None:
        """Tells at once what holds now (None if nothing is announced), then every change; until cancelled."""


class Cloud(Protocol):
    @property
    def nodes(self) -> NodeTraits: ...

    @property
    def metadata_variable(self) -> str:
        """The environment variable in which the cloud's own tools look for the metadata server; empty if none."""

    def notices(self, machine: Machine, options: NoticeOptions) -> NoticeSource:
        """Returns what announces the end of this machine. Called on the machine itself. Makes no request yet."""
