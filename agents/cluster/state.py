"""What a cluster-controller knows.

It deals in *places*: a place is one started worker, under a uid that is never used again. What a place is made of (a
process, a pod) only the shell knows; the core sees a number it may save and hand back.
"""

from enum import StrEnum
from itertools import islice
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from messages.clusters import Answer, NodeSight, StartFailure, WorkerTemplate
from messages.ids import NO_EPOCH, ClusterName, Epoch, JobName, WorkerId
from messages.workers import WorkerPhase, WorkerStatus

Table = Literal["places", "nodes", "gone", "steps", "tombstones"]

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


class Ending(Struct, frozen=True):
    why: str
    asked_at_s: float | None = None


class Observed(Struct, frozen=True):
    """What is seen of a place from outside of it."""

    node: str = ""
    """Where it is, once that is known and of any interest."""
    mute: bool = False
    """Its worker cannot speak yet, so its silence says nothing."""
    waits_for: str = ""
    failure: StartFailure | None = None
    """Why it cannot start."""
    failing_since_s: float = 0.0


class Notice(Struct, frozen=True):
    """The announced end of a place, as seen from outside of it."""

    at_s: float
    source: str
    told: bool = False
    """The master was told."""


class Place(Struct, frozen=True):
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


class Node(Struct, frozen=True):
    sight: NodeSight
    """As it was last seen; its notice counts from then."""
    notice_at_s: float | None = None
    unready_since_s: float | None = None


class Gone(Struct, frozen=True):
    worker: WorkerId
    job: JobName
    why: str
    at_s: float
    status: WorkerStatus | None = None


class Backoff(Struct, frozen=True):
    """Of a job whose places die before they are of use."""

    delay_s: float = 0.0
    next_at_s: float = 0.0


class Rules(Struct, frozen=True):
    """Every bound and every delay of the core."""

    max_workers: int = 256
    """Kept for all jobs together."""
    max_places: int = 20_000
    """Listed at all, those started by hand included."""
    report_every_s: float = 1.0
    report_gap_s: float = 0.005
    """Changes closer than this travel together."""
    refresh_every_s: float = 60.0
    """Each time a tenth of the workers is reported again, so that what does not matter is not too old."""
    whole_gap_s: float = 0.25
    """Between two reports of the whole state, however often they are asked for."""
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
    gone_at_most: int = 20_000
    gone_saved_at_most: int = 100
    tombstones_at_most: int = 40_000
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


class BusLink(Struct, frozen=True):
    since_s: float
    """When the bus was last connected: what was said before was not heard."""
    connected: bool = True


class Leadership(Struct, frozen=True):
    epoch: Epoch = NO_EPOCH
    """The highest epoch that has spoken: lower ones are over."""
    claim: Epoch | None = None
    """The newest claim to lead, as the leader's key says: no master has a higher epoch, whatever it says."""


class Sending(Struct, frozen=True):
    """What was sent to the master, and what is to be."""

    seq: int = 0
    """Of the last report."""
    at_s: float | None = None
    unsent: bool = True
    """Something that matters changed since then."""
    whole: bool = True
    """The next report is of the whole state."""
    whole_at_s: float | None = None
    """When the last such report was sent."""
    refreshed_at_s: float = 0.0
    """When workers were last reported that had not changed."""
    touched: dict[str, None] = field(default_factory=dict)
    """Places whose sights may have changed since the last report."""
    touched_nodes: dict[str, None] = field(default_factory=dict)
    buried: dict[WorkerId, None] = field(default_factory=dict)
    """Workers that are gone, or no longer told as such, since the last report."""


class Reported(Struct, frozen=True):
    """What the last report left the master with."""

    workers: dict[WorkerId, int] = field(default_factory=dict)
    """The report that last named each worker that is listed."""
    nodes: dict[str, int] = field(default_factory=dict)
    keeps: dict[JobName, int] = field(default_factory=dict)
    """Without jobs for which none are kept."""
    steps: dict[JobName, int] = field(default_factory=dict)
    listed: dict[str, WorkerId] = field(default_factory=dict)
    """The worker under which each place is listed, by its uid."""
    digest: int = 0


class Saving(Struct, frozen=True):
    """What was saved of the state."""

    saved: Known | None = None
    under_way: Known | None = None
    delay_s: float = 0.0
    not_before_s: float = 0.0
    """After a save that failed."""


class ClusterState(Struct, frozen=True):
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
    gone: dict[WorkerId, Gone] = field(default_factory=dict)
    """Oldest first."""
    steps: dict[JobName, int] = field(default_factory=dict)
    """The step that a worker of each job has completed, as it was last heard."""
    tombstones: dict[str, None] = field(default_factory=dict)
    """Worker ids that are gone and uids that have ended, oldest first: their late messages teach nothing."""
    backoffs: dict[JobName, Backoff] = field(default_factory=dict)
    saving: Saving = Saving()
    sending: Sending = field(default_factory=Sending)
    reported: Reported = field(default_factory=Reported)
    owned: tuple[str, ...] = ()
    """Tables that were copied for the decision that is being made, which may change them in place."""
    stirred: bool = False
    """Something was learned that may call for more than a report."""
    due_at_s: float = 0.0
    """When time alone could change the decision."""
    doubts: int = 0
    """Heartbeats that were ignored because they cannot be true."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """To the commands of the last decision, by the number under which they were asked."""

    def own(self, table: Table) -> "ClusterState":
        """With a copy of the table that this decision may change: with ten thousand entries one copy is enough."""
        if table in self.owned:
            return self
        return replace(self, **{table: dict(getattr(self, table))}, owned=(*self.owned, table))

    def put(self, place: Place, *, unsent: bool = True) -> "ClusterState":
        """`unsent`: its sight may have changed."""
        state = self.own("places")
        state.places[place.uid] = place
        return state.to_send(place.uid) if unsent else state

    def drop(self, uid: str) -> "ClusterState":
        state = self.own("places")
        state.places.pop(uid, None)
        return state.to_send(uid)

    def to_send(self, *uids: str, nodes: tuple[str, ...] = ()) -> "ClusterState":
        """Marks the sights of these places and nodes as changed."""
        state = self
        if "sending" not in state.owned:
            sending = replace(
                state.sending,
                touched=dict(state.sending.touched),
                touched_nodes=dict(state.sending.touched_nodes),
                buried=dict(state.sending.buried),
                unsent=True,
            )
            state = replace(state, sending=sending, owned=(*state.owned, "sending"))
        elif not state.sending.unsent:
            state = replace(state, sending=replace(state.sending, unsent=True))
        state.sending.touched.update(dict.fromkeys(uids))
        state.sending.touched_nodes.update(dict.fromkeys(nodes))
        return state

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
        gone={gone.worker: Gone(gone.worker, gone.job, gone.why, at_s) for gone in known.gone},
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
        gone=tuple(KnownGone(gone.worker, gone.job, gone.why) for gone in newest_gone(state)),
    )


def newest_gone(state: ClusterState) -> list[Gone]:
    """Those that are saved, oldest first."""
    newest = islice(reversed(state.gone.values()), state.rules.gone_saved_at_most)
    return list(newest)[::-1]


def uid_of(worker: WorkerId) -> str:
    return worker.rpartition("-")[0] or worker
