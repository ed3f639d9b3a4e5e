"""What agents must know about the cloud of their nodes. Each cloud is one folder beside `gke`.

Pure: cores import this module.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NodeTraits:
    """How the cloud labels, taints, equips and shuts down its nodes."""

    pool_label: str = ""
    """The cloud's own label with the pool's name. Nodes of pools without Tradewind's label are found by it."""
    spot_labels: tuple[tuple[str, str], ...] = ()
    """Labels with their values. A node with any of them is a spot machine."""
    accelerator_label: str = ""
    """A node with this label has GPUs, whatever its value."""
    going_taints: tuple[str, ...] = ()
    """Keys of taints on nodes that will soon be terminated, in addition to those of Kubernetes."""
    driver_folder: str = ""
    """The GPU driver's folder in containers that request GPUs; empty if containers find the driver themselves."""
    system_pods_s: float = 0.0
    """Seconds at the end of a node's shutdown that are reserved for the system's pods."""


@dataclass(frozen=True, slots=True)
class Machine:
    boot_id: str = ""
    """Changes with each boot. A notice is valid for one boot."""
    is_spot: bool = False
    has_gpus: bool = False


@dataclass(frozen=True, slots=True)
class NoticeOptions:
    """Settings of the notice watcher."""

    notice_s: float = 30.0
    """Seconds from the announcement of a preemption to the end of the machine."""
    maintenance_s: float | None = None
    """Seconds from the announcement of host maintenance to the end of the machine; None: as the cloud documents it."""
    metadata_host: str | None = None
    """Host and port of the metadata server; None: as the cloud documents it."""


@dataclass(frozen=True, slots=True)
class Notice:
    remaining_s: float
    """Seconds until the machine ends, counted from the moment when the notice arrived."""
    why: str


Tell = Callable[[Notice | None], None]


class NoticeSource(Protocol):
    async def watch(self, tell: Tell) -> None:
        """Calls `tell` with the current notice (None if there is none), then with each change, until cancelled."""


class Cloud(Protocol):
    @property
    def nodes(self) -> NodeTraits: ...

    @property
    def metadata_variable(self) -> str:
        """The environment variable in which the cloud's own tools look for the metadata server; empty if none."""

    def notices(self, machine: Machine, options: NoticeOptions) -> NoticeSource:
        """Returns the source of this machine's notices. Called on the machine itself. Makes no request."""
