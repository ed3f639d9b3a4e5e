"""What a cluster-controller and the master say to each other."""

from enum import StrEnum
from hashlib import blake2b
from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import ClusterName, Counted, Duration, JobName, Slots, WorkerId
from messages.jobs import Pod
from messages.workers import WorkerStatus


class Presence(StrEnum):
    STARTING = "starting"
    """The process or pod was started; the worker has not spoken yet."""
    ALIVE = "alive"
    SILENT = "silent"
    """Not heard of for a while; neither dead nor alive."""
    GONE = "gone"
    """Proof: the process exited, the pod or node is gone, or it said that it left."""


class StartFailure(Struct, frozen=True, omit_defaults=True):
    """Why a worker's pod cannot start. Kubernetes keeps trying."""

    reason: str
    """Kubernetes' name of it, such as `ErrImagePull` or `Unschedulable`."""
    detail: str = ""
    image: str = ""
    node: str = ""
    """Empty while the pod has none."""
    for_s: Duration = 0.0
    """Seconds since the controller first saw it."""


class WorkerSight(Struct, frozen=True, omit_defaults=True, gc=False):
    """What the controller knows of one worker."""

    worker: WorkerId
    job: JobName
    presence: Presence
    silent_s: Duration = 0.0
    why: str = ""
    status: WorkerStatus | None = None
    start_failure: StartFailure | None = None


class NodeSight(Struct, frozen=True, omit_defaults=True):
    node: str
    uid: str = ""
    """Tells a machine from the next one of the same name: clouds re-create preempted nodes under their old names."""
    zone: str = ""
    pool: str = ""
    job: JobName | None = None
    ready: bool = True
    was_ready: bool = False
    """It is not ready now but was before, unlike a node that still starts."""
    why: str = ""
    notice_s: Duration | None = None
    """Seconds until it is taken, once a notice was seen on it."""
    cordoned: bool = False
    """The notice is a cordon, to drain the node for an upgrade or a repair: the node may come back."""


class ClusterHeartbeat(Struct, frozen=True, omit_defaults=True):
    """A report of the cluster: what changed since the report before, at once on a change, every second otherwise."""

    cluster: ClusterName
    incarnation: str
    """New at each start of the controller; `seq` counts within it."""
    seq: Counted
    region: str = ""
    workers: tuple[WorkerSight, ...] = ()
    """Those that changed; all of them in a report of the whole state."""
    nodes: tuple[NodeSight, ...] = ()
    """The same of nodes."""
    keeps: dict[JobName, Counted] = field(default_factory=dict)
    """How many workers it was told to keep for each job: the master's proof that a command arrived. Changed ones only,
    as with workers; 0 for a job that is not in the whole state."""
    steps: dict[JobName, Counted] = field(default_factory=dict)
    """The step that a worker of each job has completed, where it is another than in the report before."""
    base: Counted = 0
    """The `seq` of the report that this one changes; 0 for the whole state."""
    digest: str = ""
    """Of the state after this report, see `digest_mark`; empty if its sender computes none."""
    part: Counted = 1
    parts: Annotated[int, Meta(ge=1, le=1000)] = 1
    """A large report comes in so many messages, which have the same `seq`."""
    forgotten: tuple[WorkerId, ...] = ()
    """Workers that are no longer listed."""
    forgotten_nodes: tuple[str, ...] = ()


def digest_mark(kind: str, name: str, version: int) -> int:
    """What one entry adds to the digest of a report; the digest is the exclusive or of all marks.

    `version` is the `seq` of the report that last named the worker or node, or the count of a job. The content has no
    part in it: versions of the software may encode that differently.
    """
    return int.from_bytes(blake2b(f"{kind}/{name}:{version}".encode(), digest_size=8).digest())


def digest_text(digest: int) -> str:
    return f"{digest:016x}"


class WorkerTemplate(Struct, frozen=True, omit_defaults=True):
    """How to start a worker of a job."""

    slots: Slots = 1
    python: str | None = None
    """The job's interpreter; the worker-agent's own if not given."""
    env: dict[str, str] = field(default_factory=dict)
    pod: Pod = Pod()
    divide_gpus: bool = False
    """The job may have several workers: those on one machine see different GPUs of it, one for each rank."""


class KeepWorkers(Struct, frozen=True):
    """Command: keep so many workers of this job alive. Saying it twice is saying it once."""

    job: JobName
    count: int
    template: WorkerTemplate


class RemoveWorkers(Struct, frozen=True):
    """Command: end these very workers and do not replace them."""

    job: JobName
    workers: tuple[WorkerId, ...]
    why: str


class ReportWhole(Struct, frozen=True):
    """Command: the next report is of the whole state. The sender misses a report, or is new."""

    why: str


class Answer(Struct, frozen=True, omit_defaults=True):
    """The reply to a command."""

    ok: bool
    why: str = ""
