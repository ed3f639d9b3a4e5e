"""What a cluster-controller and the master say to each other."""

from enum import StrEnum

from msgspec import Struct, field

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


class WorkerSight(Struct, frozen=True, omit_defaults=True):
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
    """The topology, whole: at once on a change, every second otherwise."""

    cluster: ClusterName
    incarnation: str
    """New at each start of the controller; `seq` counts within it."""
    seq: Counted
    region: str = ""
    workers: tuple[WorkerSight, ...] = ()
    nodes: tuple[NodeSight, ...] = ()
    keeps: dict[JobName, Counted] = field(default_factory=dict)
    """How many workers it was told to keep for each job: the master's proof that a command arrived."""


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


class Answer(Struct, frozen=True, omit_defaults=True):
    """The reply to a command."""

    ok: bool
    why: str = ""
