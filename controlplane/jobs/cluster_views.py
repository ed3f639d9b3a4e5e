"""The newest state of each cluster, built from the reports of its controller.

A report of changes is applied to the report that it names, and a digest proves that the result is the sender's state.
If it is not, the master asks for the whole state, and repeats that with growing pauses.
Reads no clock: times are those of the receiver.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from msgspec.structs import replace

from controlplane.job.events import ClusterReported
from messages.clusters import (
    ClusterHeartbeat,
    NodeObservation,
    Presence,
    ReportWhole,
    WorkerObservation,
    digest_mark,
    digest_text,
)
from messages.ids import ClusterName, JobName, WorkerId
from runtime.backoff import pause_after

PAST_INCARNATIONS_AT_MOST = 10
INCARNATION_QUIET_S = 5.0
"""Seconds of silence after which an earlier incarnation of a controller counts again."""
ASK_AGAIN_S = 0.2
ASK_AGAIN_MOST_S = 5.0
REPEAT_S = 1.0
SHOWN_EVERY_S = 0.1
"""Seconds between reports to allocators about a cluster in which no node changed."""
HEARD_EVERY_S = 0.5
"""Seconds between events to a job about a cluster in which nothing changed for it."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A report that does not fit the known state."""

    why: str
    ask: ReportWhole | None
    """The request to the controller; None if it was asked a moment ago."""


@dataclass(slots=True)
class JobChanges:
    observations: list[WorkerObservation] = field(default_factory=list)
    forgotten: list[WorkerId] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a report changed."""

    view: "ClusterView"
    is_whole: bool
    is_first: bool
    """The first report of its incarnation."""
    by_job: dict[JobName, JobChanges]
    nodes: bool
    """True if a node changed."""
    observations: tuple[WorkerObservation, ...]
    forgotten: tuple[WorkerId, ...]


class ClusterView:
    """One cluster, as its controller last reported it."""

    def __init__(self, cluster: ClusterName) -> None:
        self.cluster = cluster
        self.incarnation = ""
        self.region = ""
        self.seq = 0
        self.heard_s = float("-inf")
        """When its controller was last heard."""
        self._shown_s = float("-inf")
        """When allocators last received it."""
        self.whole = object()
        """Marker of the whole state; a new object each time that a report replaces it."""
        self.workers: dict[WorkerId, WorkerObservation] = {}
        self.by_job: dict[JobName, dict[WorkerId, WorkerObservation]] = {}
        self.nodes: dict[str, NodeObservation] = {}
        self.keeps: dict[JobName, int] = {}
        self.steps: dict[JobName, int] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._digest = 0
        self._is_sure = False
        self._past: tuple[str, ...] = ()
        self._current_s = float("-inf")
        """When the current incarnation was last heard."""
        self._parts: dict[int, ClusterHeartbeat] = {}
        self._changed_s: dict[WorkerId | str, float] = {}
        """When workers and nodes whose observations have durations were last reported."""
        self._ask_at_s = float("-inf")
        self._asks = 0
        """How often the whole state was requested since a report last fitted."""

    def take(self, heard: ClusterHeartbeat, now_s: float) -> Changes | Mismatch | None:
        """Applies a report. None if it is old, or if other parts of it are missing."""
        if self._is_old(heard, now_s):
            return None
        whole = self._assembled(heard)
        self.heard_s = now_s
        if heard.incarnation == self.incarnation:
            self._current_s = now_s
        if whole is None:
            return None
        why = "" if not whole.base else self._why_unfit(whole)
        if why:
            return self._mismatch(why, now_s)
        changes = self._apply(whole, now_s)
        if whole.digest and whole.digest != digest_text(self._digest):
            self._is_sure = False
            return self._mismatch(f"the digest of report {whole.seq} differs", now_s)
        self._is_sure = True
        self._ask_at_s, self._asks = float("-inf"), 0
        return changes

    @property
    def is_new(self) -> bool:
        """True if no other incarnation of its controller was heard."""
        return not self._past

    def concerns(self, job: JobName) -> bool:
        """True if the job has workers there, or should have."""
        return job in self.by_job or job in self.keeps

    def show(self, changes: Changes, now_s: float) -> ClusterHeartbeat | None:
        """The whole state for allocators. None if no node changed and they received it a moment ago."""
        if not changes.nodes and now_s - self._shown_s < SHOWN_EVERY_S:
            return None
        self._shown_s = now_s
        return self.topology(now_s)

    def topology(self, now_s: float) -> ClusterHeartbeat:
        """The whole state, with current countdowns."""
        return ClusterHeartbeat(
            cluster=self.cluster,
            incarnation=self.incarnation,
            seq=self.seq,
            region=self.region,
            workers=tuple(self.now(observation, now_s) for observation in self.workers.values()),
            nodes=tuple(self._node_now(node, now_s) for node in self.nodes.values()),
            keeps=self.keeps,
        )

    def _is_old(self, heard: ClusterHeartbeat, now_s: float) -> bool:
        """True for an old report. An earlier incarnation counts again when the current one is silent."""
        if heard.incarnation == self.incarnation:
            return heard.seq <= self.seq
        return heard.incarnation in self._past and now_s - self._current_s < INCARNATION_QUIET_S

    def _assembled(self, heard: ClusterHeartbeat) -> ClusterHeartbeat | None:
        if heard.parts == 1:
            self._parts.clear()
            return heard
        first = next(iter(self._parts.values()), heard)
        if (first.incarnation, first.seq, first.parts) != (heard.incarnation, heard.seq, heard.parts):
            if first.incarnation == heard.incarnation and first.seq > heard.seq:
                return None
            self._parts.clear()
        self._parts[heard.part] = heard
        if len(self._parts) < heard.parts:
            return None
        parts = [self._parts[number] for number in sorted(self._parts)]
        self._parts = {}
        return replace(
            heard,
            workers=tuple(observation for part in parts for observation in part.workers),
            nodes=tuple(node for part in parts for node in part.nodes),
            keeps={job: count for part in parts for job, count in part.keeps.items()},
            forgotten=tuple(worker for part in parts for worker in part.forgotten),
            forgotten_nodes=tuple(node for part in parts for node in part.forgotten_nodes),
            part=1,
            parts=1,
        )

    def _why_unfit(self, changes: ClusterHeartbeat) -> str:
        if changes.incarnation != self.incarnation:
            return "the first report of its controller is missing"
        if not self._is_sure:
            return "the known state differs from its controller's"
        return "" if changes.base == self.seq else f"it changes report {changes.base}, but {self.seq} is known"

    def _mismatch(self, why: str, now_s: float) -> Mismatch:
        if now_s < self._ask_at_s:
            return Mismatch(why, None)
        self._asks += 1
        self._ask_at_s = now_s + pause_after(self._asks, ASK_AGAIN_S, ASK_AGAIN_MOST_S)
        return Mismatch(why, ReportWhole(why))

    def _apply(self, report: ClusterHeartbeat, now_s: float) -> Changes:
        is_first = report.incarnation != self.incarnation
        if is_first and self.incarnation:
            self._past = (*self._past, self.incarnation)[-PAST_INCARNATIONS_AT_MOST:]
        if not report.base:
            self._clear()
        self._current_s = now_s
        self.incarnation, self.region, self.seq = report.incarnation, report.region, report.seq
        by_job: dict[JobName, JobChanges] = {}
        for worker in report.forgotten:
            self._forget(worker, by_job)
        for observation in report.workers:
            self._name(observation, by_job, now_s)
        self._see_nodes(report, now_s)
        self.steps |= report.steps
        for job, count in report.keeps.items():
            self._keep(job, count)
            by_job.setdefault(job, JobChanges())
        has_nodes = bool(report.nodes or report.forgotten_nodes) or not report.base
        return Changes(self, not report.base, is_first, by_job, has_nodes, report.workers, report.forgotten)

    def _clear(self) -> None:
        self.whole = object()
        self.workers, self.by_job, self.nodes, self.keeps, self.steps = {}, {}, {}, {}, {}
        self._versions, self._digest, self._changed_s = {}, 0, {}

    def _name(self, observation: WorkerObservation, by_job: dict[JobName, JobChanges], now_s: float) -> None:
        self._flip("worker", observation.worker, self.seq)
        self.workers[observation.worker] = observation
        self.by_job.setdefault(observation.job, {})[observation.worker] = observation
        self._changed_s.pop(observation.worker, None)
        if _has_countdown(observation):
            self._changed_s[observation.worker] = now_s
        by_job.setdefault(observation.job, JobChanges()).observations.append(observation)

    def _forget(self, worker: WorkerId, by_job: dict[JobName, JobChanges]) -> None:
        known = self.workers.pop(worker, None)
        self._flip("worker", worker, None)
        self._changed_s.pop(worker, None)
        if known is None:
            return
        mine = self.by_job[known.job]
        mine.pop(worker, None)
        if not mine:
            del self.by_job[known.job]
        by_job.setdefault(known.job, JobChanges()).forgotten.append(worker)

    def _see_nodes(self, report: ClusterHeartbeat, now_s: float) -> None:
        for name in report.forgotten_nodes:
            self.nodes.pop(name, None)
            self._changed_s.pop(name, None)
            self._flip("node", name, None)
        for node in report.nodes:
            self.nodes[node.node] = node
            self._changed_s[node.node] = now_s
            self._flip("node", node.node, self.seq)

    def _keep(self, job: JobName, count: int) -> None:
        self._flip("keep", job, count or None)
        self.keeps.pop(job, None)
        if count:
            self.keeps[job] = count

    def _flip(self, kind: str, name: str, version: int | None) -> None:
        before = self._versions.pop((kind, name), None)
        if before is not None:
            self._digest ^= digest_mark(kind, name, before)
        if version is not None:
            self._versions[kind, name] = version
            self._digest ^= digest_mark(kind, name, version)

    def now(self, observation: WorkerObservation, now_s: float) -> WorkerObservation:
        """The observation with its current durations."""
        named_s = self._changed_s.get(observation.worker)
        if named_s is None:
            return observation
        later_s, status, failure = now_s - named_s, observation.status, observation.start_failure
        if failure is not None:
            failure = replace(failure, for_s=failure.for_s + later_s)
        if status is not None and status.notice_s is not None:
            status = replace(status, notice_s=max(0.0, status.notice_s - later_s))
        silent_s = observation.silent_s + later_s if observation.presence is Presence.SILENT else observation.silent_s
        return replace(observation, silent_s=silent_s, status=status, start_failure=failure)

    def _node_now(self, node: NodeObservation, now_s: float) -> NodeObservation:
        if node.notice_s is None:
            return node
        return replace(node, notice_s=max(0.0, node.notice_s - (now_s - self._changed_s.get(node.node, now_s))))


def _has_countdown(observation: WorkerObservation) -> bool:
    is_noticed = observation.status is not None and observation.status.notice_s is not None
    return is_noticed or observation.start_failure is not None or observation.presence is Presence.SILENT


class JobFeed:
    """Events for one job about each cluster: first the whole view, then what changes for the job.

    Workers that the controller lists although the job has tombstoned them are repeated, so that the job orders their
    end again."""

    def __init__(self, job: JobName) -> None:
        self._job = job
        self._reported: dict[ClusterName, tuple[object, float]] = {}
        """The whole state that the job last received, and the time of its last event."""
        self._repeated_s: dict[ClusterName, float] = {}

    def event_of(self, changes: Changes, gone: Container[WorkerId], now_s: float) -> ClusterReported | None:
        """The next event. None if nothing changed for the job and its last event is recent."""
        view = changes.view
        mine = changes.by_job.get(self._job)
        reported, sent_s = self._reported.get(view.cluster, (None, 0.0))
        is_whole = reported is not view.whole
        if not is_whole and mine is None and now_s - sent_s < HEARD_EVERY_S:
            return None
        self._reported[view.cluster] = view.whole, now_s
        listed = view.by_job.get(self._job, {})
        if is_whole:
            observations = [view.now(observation, now_s) for observation in listed.values()]
        else:
            observations = mine.observations if mine is not None else []
        if not is_whole and now_s - self._repeated_s.get(view.cluster, 0.0) >= REPEAT_S:
            self._repeated_s[view.cluster] = now_s
            lost = (observation for worker, observation in listed.items() if worker in gone)
            observations = [
                *observations,
                *(observation for observation in lost if observation.presence is not Presence.GONE),
            ]
        return ClusterReported(
            now_s,
            view.cluster,
            view.incarnation,
            view.keeps.get(self._job, 0),
            view.steps.get(self._job, 0),
            tuple(observations),
            tuple(mine.forgotten) if mine is not None and not is_whole else (),
            is_whole,
        )
