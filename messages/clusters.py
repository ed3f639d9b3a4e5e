"""Messages between cluster-controllers and the master."""

from enum import StrEnum
from hashlib import blake2b
from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import ClusterName, Counted, Duration, JobName, Slots, WorkerId
from messages.jobs import Pod
from messages.workers import WorkerStatus


class Presence(StrEnum):
    STARTING = "starting"
    """The process or pod was started; the worker has sent no heartbeat yet."""
    ALIVE = "alive"
    SILENT = "silent"
    """No heartbeat for a while. The worker may be alive or dead."""
    GONE = "gone"
    """Proven: the process exited, the pod or node is gone, or the worker reported that it left."""


UNSCHEDULABLE = "Unschedulable"
BAD_IMAGES = frozenset({"InvalidImageName", "ErrImageNeverPull"})
"""Reasons of a start failure: the name of the image or its pull policy is wrong."""
PULL_FAILURES = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"})
CONTAINER_FAILURES = (
    BAD_IMAGES
    | PULL_FAILURES
    | {
        "SignatureValidationFailed",
        "CreateContainerConfigError",
        "CreateContainerError",
    }
)
"""Reasons for which a kubelet does not start a container, and retries."""


class StartFailure(Struct, frozen=True, omit_defaults=True):
    """Why a worker's pod cannot start. Kubernetes keeps trying."""

    reason: str
    """The reason as Kubernetes names it, such as `ErrImagePull` or `Unschedulable`."""
    detail: str = ""
    image: str = ""
    node: str = ""
    """The pod's node; empty if it has none."""
    for_s: Duration = 0.0
    """Seconds since the controller first saw the failure."""


class WorkerObservation(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a controller reports of one worker."""

    worker: WorkerId
    job: JobName
    presence: Presence
    silent_s: Duration = 0.0
    why: str = ""
    status: WorkerStatus | None = None
    start_failure: StartFailure | None = None


class NodeObservation(Struct, frozen=True, omit_defaults=True):
    node: str
    uid: str = ""
    """Distinguishes machines of the same name: clouds re-create preempted nodes under their old names."""
    zone: str = ""
    pool: str = ""
    job: JobName | None = None
    ready: bool = True
    was_ready: bool = False
    """True if the node is not ready now but was before, unlike a node that still starts."""
    why: str = ""
    notice_s: Duration | None = None
    """Seconds until the node ends, if it has a notice."""
    cordoned: bool = False
    """True if the notice is a cordon, to drain the node for an upgrade or a repair. The node may come back."""


class ClusterHeartbeat(Struct, frozen=True, omit_defaults=True):
    """A report of a cluster's changes since the previous report: soon after a change, otherwise every second."""

    cluster: ClusterName
    incarnation: str
    """New at each start of the controller; `seq` counts within it."""
    seq: Counted
    region: str = ""
    workers: tuple[WorkerObservation, ...] = ()
    """Changed workers; all workers in a report of the whole state."""
    nodes: tuple[NodeObservation, ...] = ()
    """Changed nodes; all nodes in a report of the whole state."""
    keeps: dict[JobName, Counted] = field(default_factory=dict)
    """The wanted number of workers of each job, which proves to the master that its command arrived. Only changes, as
    with workers; 0 for a job that is no longer in the whole state."""
    steps: dict[JobName, Counted] = field(default_factory=dict)
    """The newest step of a worker of each job, if it changed since the previous report."""
    base: Counted = 0
    """The `seq` of the report that this one changes; 0 for the whole state."""
    digest: str = ""
    """The digest of the state after this report, see `digest_mark`; empty if the sender computes none."""
    part: Counted = 1
    parts: Annotated[int, Meta(ge=1, le=1000)] = 1
    """Number of messages of a large report, which have the same `seq`."""
    forgotten: tuple[WorkerId, ...] = ()
    """Workers that are no longer listed."""
    forgotten_nodes: tuple[str, ...] = ()


def digest_mark(kind: str, name: str, version: int) -> int:
    """Returns the mark of one entry of a report. The digest is the exclusive or of all marks.

    `version` is the `seq` of the report that last named the worker or node, or the count of a job. The mark ignores
    the content, because versions of the software may encode it differently.
    """
    return int.from_bytes(blake2b(f"{kind}/{name}:{version}".encode(), digest_size=8).digest())


def digest_text(digest: int) -> str:
    return f"{digest:016x}"


class WorkerTemplate(Struct, frozen=True, omit_defaults=True):
    """How to start a worker of a job."""

    slots: Slots = 1
    python: str | None = None
    """The job's interpreter. Default: the worker-agent's own."""
    env: dict[str, str] = field(default_factory=dict)
    pod: Pod = Pod()
    divide_gpus: bool = False
    """True if workers on one machine must see different GPUs of it, one for each rank."""


class KeepWorkers(Struct, frozen=True):
    """Command: keep this number of workers of the job alive. Idempotent."""

    job: JobName
    count: int
    template: WorkerTemplate


class RemoveWorkers(Struct, frozen=True):
    """Command: end exactly these workers and do not replace them."""

    job: JobName
    workers: tuple[WorkerId, ...]
    why: str


class ReportWhole(Struct, frozen=True):
    """Command: report the whole state next. The sender is new or missed a report."""

    why: str


class Answer(Struct, frozen=True, omit_defaults=True):
    """The reply to a command."""

    ok: bool
    why: str = ""
