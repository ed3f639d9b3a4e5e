"""State of the cluster-controller's core.

A *place* is one started worker, with a uid that is never reused. Only the shell knows what a place is (a process or a
pod); the core saves its pid and birth and returns them to the shell.
"""

from enum import StrEnum
from itertools import islice
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from messages.clusters import Answer, NodeObservation, StartFailure, WorkerTemplate
from messages.ids import NO_EPOCH, ClusterName, Epoch, JobName, WorkerId
from messages.workers import WorkerPhase, WorkerStatus

Table = Literal["places", "nodes", "gone", "steps", "tombstones"]

WHY_AT_MOST = 300
"""Characters of a reason. Reasons are saved and repeated."""
UNHEARD = "0000"
"""Stands for the incarnation of a worker that has sent nothing yet."""


class Wanted(Struct, frozen=True):
    count: int
    template: WorkerTemplate


class KnownPlace(Struct, frozen=True, omit_defaults=True):
    uid: str
    job: JobName
    pid: int = 0
    """0: saved before the start. Only the shell can find out whether the process was started."""
    birth: str = ""
    """Distinguishes this process from a later one with its pid."""
    worker: WorkerId | None = None


class KnownGone(Struct, frozen=True):
    worker: WorkerId
    job: JobName
    why: str


class Known(Struct, frozen=True, omit_defaults=True):
    """The controller's record in KV, which outlives it. A place is recorded before it is started."""

    incarnation: str
    """The controller that wrote the record."""
    epoch: Epoch = NO_EPOCH
    places_made: int = 0
    wanted: dict[JobName, Wanted] = {}
    places: tuple[KnownPlace, ...] = ()
    gone: tuple[KnownGone, ...] = ()
    """The newest gone workers. The next incarnation reports them again."""


class Stage(StrEnum):
    PLANNED = "planned"
    """Has a uid and is not started yet."""
    ASKED = "asked"
    """The shell is starting it."""
    RUNNING = "running"
    RESTORED = "restored"
    """Started by an earlier incarnation. The shell has yet to report whether it is alive."""
    BY_HAND = "by_hand"
    """Known by its heartbeats only: somebody else started it, and the shell does not see it end."""


class Ending(Struct, frozen=True):
    why: str
    asked_at_s: float | None = None


class Observed(Struct, frozen=True):
    """The state of a place as seen from outside."""

    node: str = ""
    """The node of the place; empty while unknown, and for plain processes."""
    mute: bool = False
    """The worker cannot send anything yet, so its silence means nothing."""
    waits_for: str = ""
    failure: StartFailure | None = None
    """Why the place cannot start."""
    failing_since_s: float = 0.0


class Notice(Struct, frozen=True):
    """The announced end of a place, as seen from outside."""

    at_s: float
    source: str
    reported: bool = False
    """True if the notice was sent to the master."""


class Place(Struct, frozen=True):
    uid: str
    job: JobName
    stage: Stage
    since_s: float
    """When the place was planned, restored, started or first heard of."""
    template: WorkerTemplate = field(default_factory=WorkerTemplate)
    pid: int = 0
    birth: str = ""
    worker: WorkerId | None = None
    status: WorkerStatus | None = None
    heard_at_s: float | None = None
    silent: bool = False
    """True until the worker's next heartbeat; a reconnection does not change it."""
    joined: bool = False
    """True once the worker has reported the end of its warm-up."""
    left_at_s: float | None = None
    """When the controller learned that the worker left. The place has yet to end."""
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
        """Returns since when the worker is silent. Time in which the controller was disconnected does not count."""
        return max(self.since_s if self.heard_at_s is None else self.heard_at_s, connected_since_s)

    def with_notice(self, at_s: float, source: str) -> "Place":
        """Adds a notice. A second notice can only move the end forward."""
        notice = Notice(at_s, source) if self.notice is None else replace(self.notice, at_s=min(self.notice.at_s, at_s))
        return replace(self, notice=notice)


class Node(Struct, frozen=True):
    observation: NodeObservation
    """The last observation. Its `notice_s` counts from that moment."""
    notice_at_s: float | None = None
    unready_since_s: float | None = None


class Gone(Struct, frozen=True):
    worker: WorkerId
    job: JobName
    why: str
    at_s: float
    status: WorkerStatus | None = None


class Backoff(Struct, frozen=True):
    """The pause before the next start for a job whose places end before they are of use."""

    failures: int = 0
    next_at_s: float = 0.0


class Rules(Struct, frozen=True):
    """All bounds and delays of the core."""

    max_workers: int = 256
    """Workers that are wanted, for all jobs together."""
    max_places: int = 20_000
    """Places, including those that were started by hand."""
    report_every_s: float = 1.0
    report_gap_s: float = 0.005
    """Changes within this time are sent in one report."""
    status_gap_of_worker_s: float = 0.001
    """Seconds per worker of the cluster that a report of changed statuses waits beyond `report_gap_s`: when a large
    world changes, all its workers do."""
    status_gap_most_s: float = 0.5
    """The most seconds that such a report waits."""
    refresh_every_s: float = 60.0
    """Seconds between refreshes. Each refresh reports a tenth of the workers, so that minor values are not too old."""
    whole_gap_s: float = 0.25
    """Minimum seconds between two reports of the whole state."""
    silent_after_s: float = 2.0
    paused_after_s: float = 1.0
    """Seconds of delay after which the controller assumes that it was paused itself and heard no worker meanwhile."""
    speak_within_s: float = 60.0
    """Seconds until a place is replaced if its worker has sent nothing."""
    forget_after_s: float = 60.0
    """Seconds until a silent worker that was started by hand is forgotten."""
    end_grace_s: float = 10.0
    end_again_s: float = 5.0
    """Seconds after the grace until the order to end a place is repeated."""
    leave_grace_s: float = 10.0
    """Seconds from the message that a worker left until its place is ended."""
    gone_for_s: float = 60.0
    gone_at_most: int = 20_000
    gone_saved_at_most: int = 100
    tombstones_at_most: int = 40_000
    backoff_s: float = 0.5
    backoff_max_s: float = 30.0
    lost_after_s: float = 10.0
    """Seconds until a place is replaced if its node is not ready and its worker is silent."""
    notice_for_node_s: float = 15.0
    """Seconds at the end of a node's notice that the node needs itself. Workers get the rest, but at least as much."""
    lived_s: float = 10.0
    """Seconds after which a place has shown that its template works."""
    save_retry_s: float = 0.5
    save_retry_max_s: float = 5.0
    ended_jobs_at_most: int = 200


class BusLink(Struct, frozen=True):
    since_s: float
    """When the bus was last connected. Earlier messages may be lost."""
    connected: bool = True


class Leadership(Struct, frozen=True):
    epoch: Epoch = NO_EPOCH
    """The highest epoch of a command so far. Lower epochs are over."""
    claim: Epoch | None = None
    """The newest claim to lead, from the lease key. No master has a higher epoch."""


class Sending(Struct, frozen=True):
    """What was sent to the master, and what must be sent next."""

    seq: int = 0
    """The number of the last report."""
    at_s: float | None = None
    unsent: bool = True
    """True if something important changed since then."""
    whole: bool = True
    """True if the next report must contain the whole state."""
    whole_at_s: float | None = None
    """When the last report of the whole state was sent."""
    refreshed_at_s: float = 0.0
    """When unchanged workers were last reported."""
    touched: dict[str, None] = field(default_factory=dict)
    """Places whose observations may have changed since the last report."""
    touched_nodes: dict[str, None] = field(default_factory=dict)
    tombstoned: dict[WorkerId, None] = field(default_factory=dict)
    """Workers that were tombstoned or dropped from `gone` since the last report."""


class Reported(Struct, frozen=True):
    """The master's view after the last report."""

    workers: dict[WorkerId, int] = field(default_factory=dict)
    """The number of the report that last named each listed worker."""
    nodes: dict[str, int] = field(default_factory=dict)
    keeps: dict[JobName, int] = field(default_factory=dict)
    """Wanted workers of each job, without jobs that want none."""
    steps: dict[JobName, int] = field(default_factory=dict)
    listed: dict[str, WorkerId] = field(default_factory=dict)
    """The worker id under which each place is listed, by uid."""
    digest: int = 0


class Saving(Struct, frozen=True):
    """The progress of saving the record."""

    saved: Known | None = None
    under_way: Known | None = None
    failures: int = 0
    """Saves that failed in a row."""
    not_before_s: float = 0.0
    """When the next save may start, after a failed one."""


class ClusterState(Struct, frozen=True):
    cluster: ClusterName
    incarnation: str
    region: str
    rules: Rules
    link: BusLink
    leadership: Leadership = Leadership()
    stopping: bool = False
    synced: bool = True
    """True once all existing nodes and places were observed. Until then, the core starts, ends and reports nothing."""
    places_made: int = 0
    wanted: dict[JobName, Wanted] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    gone: dict[WorkerId, Gone] = field(default_factory=dict)
    """Workers that are gone, oldest first."""
    steps: dict[JobName, int] = field(default_factory=dict)
    """The step in the last heartbeat of a worker, for each job."""
    tombstones: dict[str, None] = field(default_factory=dict)
    """Worker ids that are gone and uids that have ended, oldest first. The core ignores their late messages."""
    backoffs: dict[JobName, Backoff] = field(default_factory=dict)
    saving: Saving = Saving()
    sending: Sending = field(default_factory=Sending)
    reported: Reported = field(default_factory=Reported)
    owned: tuple[str, ...] = ()
    """Tables that were copied for the current decision, which may change them in place."""
    stirred: bool = False
    """True if an event may need more than a report."""
    due_at_s: float = 0.0
    """When the decision may change without an event."""
    doubts: int = 0
    """Heartbeats that were ignored because their numbers are impossible."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """Answers to the commands of the last decision, by their numbers."""

    def own(self, table: Table) -> "ClusterState":
        """Returns a state with its own copy of the table. A decision copies a table at most once."""
        if table in self.owned:
            return self
        return replace(self, **{table: dict(getattr(self, table))}, owned=(*self.owned, table))

    def put(self, place: Place, *, unsent: bool = True) -> "ClusterState":
        """Stores a place. `unsent`: its observation may have changed."""
        state = self.own("places")
        state.places[place.uid] = place
        return state.to_send(place.uid) if unsent else state

    def drop(self, uid: str) -> "ClusterState":
        state = self.own("places")
        state.places.pop(uid, None)
        return state.to_send(uid)

    def to_send(self, *uids: str, nodes: tuple[str, ...] = ()) -> "ClusterState":
        """Marks the observations of these places and nodes as changed."""
        state = self
        if "sending" not in state.owned:
            sending = replace(
                state.sending,
                touched=dict(state.sending.touched),
                touched_nodes=dict(state.sending.touched_nodes),
                tombstoned=dict(state.sending.tombstoned),
                unsent=True,
            )
            state = replace(state, sending=sending, owned=(*state.owned, "sending"))
        elif not state.sending.unsent:
            state = replace(state, sending=replace(state.sending, unsent=True))
        state.sending.touched.update(dict.fromkeys(uids))
        state.sending.touched_nodes.update(dict.fromkeys(nodes))
        return state

    def live(self, job: JobName) -> list[Place]:
        """Returns the places that count towards the wanted number."""
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
    """Returns the first state. `incarnation` must be new at each start, because uids of places contain it."""
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


def is_at_rest(state: ClusterState) -> bool:
    """True if a stopping controller has ended its places and saved its record."""
    has_places = any(place.ours for place in state.places.values())
    return state.stopping and not has_places and state.saving.saved == known_of(state)


def newest_gone(state: ClusterState) -> list[Gone]:
    """Returns the gone workers that the record contains, oldest first."""
    newest = islice(reversed(state.gone.values()), state.rules.gone_saved_at_most)
    return list(newest)[::-1]


def uid_of(worker: WorkerId) -> str:
    return worker.rpartition("-")[0] or worker
