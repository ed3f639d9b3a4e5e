"""What a cluster-controller knows.

It deals in *places*: a place is one started worker, under a uid that is never used again. What a place is made of (a
process, a pod) only the shell knows; the core sees a number it may save and hand back.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from msgspec import Struct

from messages.clusters import Answer, NodeSight, StartFailure, WorkerTemplate
from messages.ids import NO_EPOCH, ClusterName, Epoch, JobName, WorkerId
from messages.workers import WorkerPhase, WorkerStatus

UNHEARD = "0000"
"""Stands for the incarnation of a worker that has not spoken yet."""


class Wanted(Struct, frozen=True):
    count: int
    template: WorkerTemplate


class KnownPlace(Struct, frozen=True, omit_defaults=True):
    uid: str
    job: JobName
    pid: int = 0
    """0: saved before it was started; whether it was, only the shell can find out."""
    birth: str = ""
    """What tells this pid from a later one of the same number."""
    worker: WorkerId | None = None


class KnownGone(Struct, frozen=True):
    worker: WorkerId
    job: JobName
    why: str


class Known(Struct, frozen=True, omit_defaults=True):
    """What outlives the controller, in KV. A place is in it before anything is started for it."""

    incarnation: str
    """Who wrote it."""
    epoch: Epoch = NO_EPOCH
    places_made: int = 0
    wanted: dict[JobName, Wanted] = {}
    places: tuple[KnownPlace, ...] = ()
    gone: tuple[KnownGone, ...] = ()
    """The newest of them: whoever was not told is told by the next incarnation."""


class Stage(StrEnum):
    PLANNED = "planned"
    """Has a uid; nothing was started for it yet."""
    ASKED = "asked"
    """The shell is starting it."""
    RUNNING = "running"
    RESTORED = "restored"
    """Made by an earlier incarnation; the shell has yet to say whether it lives."""
    BY_HAND = "by_hand"
    """Known by its heartbeats only: somebody else started it, nobody here sees it end."""


@dataclass(frozen=True, slots=True)
class Ending:
    why: str
    asked_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What is seen of a place from outside of it."""

    node: str = ""
    """Where it is, once that is known and of any interest."""
    mute: bool = False
    """Its worker cannot speak yet, so its silence says nothing."""
    waits_for: str = ""
    failure: StartFailure | None = None
    """Why it cannot start."""
    failing_since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Notice:
    """The announced end of a place, as seen from outside of it."""

    at_s: float
    source: str
    told: bool = False
    """The master was told."""


@dataclass(frozen=True, slots=True)
class Place:
    uid: str
    job: JobName
    stage: Stage
    since_s: float
    """When it was planned, restored or first heard of."""
    template: WorkerTemplate = field(default_factory=WorkerTemplate)
    pid: int = 0
    birth: str = ""
    worker: WorkerId | None = None
    status: WorkerStatus | None = None
    heard_at_s: float | None = None
    silent: bool = False
    """Sticky: silence ends with a word of the worker, not with a reconnect of ours."""
    joined: bool = False
    """Was seen with its warm-up done."""
    left_at_s: float | None = None
    """When it was known that its worker left; the end of the place has yet to be seen."""
    ending: Ending | None = None
    observed: Observed = Observed()
    notice: Notice | None = None

    @property
    def id(self) -> WorkerId:
        return self.worker or WorkerId(f"{self.uid}-{UNHEARD}")

    @property
    def ours(self) -> bool:
        return self.stage is not Stage.BY_HAND

    @property
    def departing(self) -> bool:
        status = self.status
        leaving = status is not None and (status.phase is WorkerPhase.LEAVING or status.notice_s is not None)
        return leaving or self.left_at_s is not None or self.ending is not None or self.notice is not None

    def silent_since_s(self, connected_since_s: float) -> float:
        """Nothing can be heard while the listener is away, so its absence does not count."""
        return max(self.since_s if self.heard_at_s is None else self.heard_at_s, connected_since_s)

    def with_notice(self, at_s: float, source: str) -> "Place":
        """A second notice can only mean an earlier end."""
        notice = Notice(at_s, source) if self.notice is None else replace(self.notice, at_s=min(self.notice.at_s, at_s))
        return replace(self, notice=notice)


@dataclass(frozen=True, slots=True)
class Node:
    sight: NodeSight
    """As it was last seen; its notice counts from then."""
    notice_at_s: float | None = None
    unready_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    worker: WorkerId
    job: JobName
    why: str
    at_s: float
    status: WorkerStatus | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Of a job whose places die before they are of use."""

    delay_s: float = 0.0
    next_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rules:
    """Every bound and every delay of the core."""

    max_workers: int = 256
    """Kept for all jobs together."""
    max_places: int = 2000
    """Listed at all, those started by hand included."""
    topology_every_s: float = 1.0
    topology_gap_s: float = 0.02
    """Changes closer than this travel together."""
    loss_gap_s: float = 0.005
    """The same of losses, which everybody who trains waits to hear of."""
    silent_after_s: float = 2.0
    paused_after_s: float = 1.0
    """A controller that wakes so much later than it asked to has stood still itself, and has heard nobody meanwhile."""
    speak_within_s: float = 60.0
    """A place whose worker has not spoken after so long is ended and replaced."""
    forget_after_s: float = 60.0
    """A silent worker that was started by hand is listed for so long: nobody sees it end."""
    end_grace_s: float = 10.0
    end_again_s: float = 5.0
    """After the grace, until a place that still has not ended is ended again."""
    leave_grace_s: float = 10.0
    """From the word that it left to the end of its place."""
    gone_for_s: float = 60.0
    gone_at_most: int = 500
    gone_saved_at_most: int = 100
    tombstones_at_most: int = 4000
    backoff_s: float = 0.5
    backoff_max_s: float = 30.0
    lost_after_s: float = 10.0
    """A place on a node that is not ready, and that is not heard of for so long either, is ended and replaced."""
    notice_for_node_s: float = 15.0
    """The end of a node's notice that is for the node itself; workers have the rest, or as much if that is more."""
    lived_s: float = 10.0
    """A place that lived so long has shown that its template works."""
    save_retry_s: float = 0.5
    save_retry_max_s: float = 5.0
    ended_jobs_at_most: int = 200
    topology_bytes_at_most: int = 800_000


@dataclass(frozen=True, slots=True)
class BusLink:
    since_s: float
    """When the bus was last connected: what was said before was not heard."""
    connected: bool = True


@dataclass(frozen=True, slots=True)
class Leadership:
    epoch: Epoch = NO_EPOCH
    """The highest epoch that has spoken: lower ones are over."""
    claim: Epoch | None = None
    """The newest claim to lead, as the leader's key says: no master has a higher epoch, whatever it says."""


@dataclass(frozen=True, slots=True)
class Sending:
    """What was sent of the topology."""

    seq: int = 0
    """Of the last topology."""
    at_s: float | None = None
    unsent: bool = True
    """Something that matters changed since then."""
    loss_unsent: bool = False
    """A worker is gone since then."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What was saved of the state."""

    saved: Known | None = None
    under_way: Known | None = None
    delay_s: float = 0.0
    not_before_s: float = 0.0
    """After a save that failed."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    cluster: ClusterName
    incarnation: str
    region: str
    rules: Rules
    link: BusLink
    leadership: Leadership = Leadership()
    stopping: bool = False
    synced: bool = True
    """Everything that exists was seen once. Before, nothing is started, ended or told."""
    places_made: int = 0
    wanted: dict[JobName, Wanted] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    gone: tuple[Gone, ...] = ()
    """Oldest first."""
    tombstones: dict[str, None] = field(default_factory=dict)
    """Worker ids that are gone and uids that have ended, oldest first: their late messages teach nothing."""
    backoffs: dict[JobName, Backoff] = field(default_factory=dict)
    saving: Saving = Saving()
    sending: Sending = Sending()
    due_at_s: float = 0.0
    """When time alone could change the decision."""
    doubts: int = 0
    """Heartbeats that were ignored because they cannot be true."""
    answer: Answer | None = None
    """To the command that the last event was, if it was one."""

    def to_send(self, changed: bool = True) -> "ClusterState":
        """Marks the topology as changed."""
        if not changed or self.sending.unsent:
            return self
        return replace(self, sending=replace(self.sending, unsent=True))

    def live(self, job: JobName) -> list[Place]:
        """Places that count towards what is wanted."""
        return [place for place in self.places.values() if place.job == job and not place.departing]


def new_cluster(
    cluster: ClusterName,
    incarnation: str,
    region: str,
    at_s: float,
    known: Known | None = None,
    rules: Rules | None = None,
    *,
    synced: bool = True,
) -> ClusterState:
    """`incarnation` must be new at each start: the uids of places are made from it."""
    state = ClusterState(cluster, incarnation, region, rules or Rules(), BusLink(at_s), synced=synced)
    if known is None:
        return state
    gone = {each.worker for each in known.gone}
    places = {
        place.uid: Place(
            place.uid,
            place.job,
            Stage.RESTORED,
            since_s=at_s,
            pid=place.pid,
            birth=place.birth,
            worker=place.worker,
            joined=place.worker is not None,
            left_at_s=at_s if place.worker in gone else None,
        )
        for place in known.places
    }
    return replace(
        state,
        leadership=Leadership(known.epoch),
        places_made=known.places_made,
        wanted=dict(known.wanted),
        places=places,
        gone=tuple(Gone(gone.worker, gone.job, gone.why, at_s) for gone in known.gone),
        tombstones={gone.worker: None for gone in known.gone},
        saving=Saving(known),
    )


def known_of(state: ClusterState) -> Known:
    return Known(
        incarnation=state.incarnation,
        epoch=state.leadership.epoch,
        places_made=state.places_made,
        wanted=state.wanted,
        places=tuple(
            KnownPlace(place.uid, place.job, place.pid, place.birth, place.worker)
            for place in state.places.values()
            if place.ours
        ),
        gone=tuple(
            KnownGone(gone.worker, gone.job, gone.why) for gone in state.gone[-state.rules.gone_saved_at_most :]
        ),
    )


def uid_of(worker: WorkerId) -> str:
    return worker.rpartition("-")[0] or worker
