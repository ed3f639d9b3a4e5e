"""What the reports of cluster-controllers add up to: the newest state of each cluster, and what each report changed.

A report of changes is applied to the report that it names, and the digest proves that the result is what its sender
has. Otherwise the whole state is asked for, and asked for again, less and less often, while other reports come.
It reads no clock: times are those of the receiver.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from msgspec.structs import replace

from controlplane.job.events import ClusterReported
from messages.clusters import (
    ClusterHeartbeat,
    NodeSight,
    Presence,
    ReportWhole,
    WorkerSight,
    digest_mark,
    digest_text,
)
from messages.ids import ClusterName, JobName, WorkerId

PAST_INCARNATIONS_AT_MOST = 10
INCARNATION_QUIET_S = 5.0
"""Seconds of silence after which an earlier incarnation of a controller is believed again."""
ASK_AGAIN_S = 0.2
ASK_AGAIN_MOST_S = 5.0
REPEAT_S = 1.0
HEARD_EVERY_S = 0.5
"""How often a job hears of a cluster in which nothing of its own has changed."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The report cannot be applied to what is known."""

    why: str
    ask: ReportWhole | None
    """For the controller; None while it was asked a moment ago."""


@dataclass(slots=True)
class JobChanges:
    sights: list[WorkerSight] = field(default_factory=list)
    forgotten: list[WorkerId] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a report changed."""

    view: "ClusterView"
    is_whole: bool
    is_first: bool
    """Of its incarnation."""
    by_job: dict[JobName, JobChanges]
    nodes: bool
    """Some node changed."""
    sights: tuple[WorkerSight, ...]
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
        self.shown_s = float("-inf")
        """When allocators last looked at it."""
        self.whole = object()
        """Another one each time that the whole state was taken over."""
        self.workers: dict[WorkerId, WorkerSight] = {}
        self.by_job: dict[JobName, dict[WorkerId, WorkerSight]] = {}
        self.nodes: dict[str, NodeSight] = {}
        self.keeps: dict[JobName, int] = {}
        self.steps: dict[JobName, int] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._digest = 0
        self._is_sure = False
        self._past: tuple[str, ...] = ()
        self._present_s = float("-inf")
        """When the incarnation that is believed was last heard."""
        self._parts: dict[int, ClusterHeartbeat] = {}
        self._changed_s: dict[WorkerId | str, float] = {}
        """When workers and nodes whose sights have durations were last named."""
        self._ask_at_s = float("-inf")
        self._ask_delay_s = ASK_AGAIN_S

    def take(self, heard: ClusterHeartbeat, now_s: float) -> Changes | Mismatch | None:
        """None for an old report, or a part of one whose other parts are missing."""
        if self._is_old(heard, now_s):
            return None
        whole = self._assembled(heard)
        self.heard_s = now_s
        if heard.incarnation == self.incarnation:
            self._present_s = now_s
        if whole is None:
            return None
        why = "" if not whole.base else self._why_unfit(whole)
        if why:
            return self._mismatch(why, now_s)
        changes = self._apply(whole, now_s)
        if whole.digest and whole.digest != digest_text(self._digest):
            self._is_sure = False
            return self._mismatch(f"the digest of report {whole.seq} is another", now_s)
        self._is_sure = True
        self._ask_at_s, self._ask_delay_s = float("-inf"), ASK_AGAIN_S
        return changes

    @property
    def is_new(self) -> bool:
        """No other incarnation of its controller was heard."""
        return not self._past

    def concerns(self, job: JobName) -> bool:
        """It has workers there, or should have."""
        return job in self.by_job or job in self.keeps

    def topology(self, now_s: float) -> ClusterHeartbeat:
        """The whole state, with its countdowns as they are now."""
        return ClusterHeartbeat(
            cluster=self.cluster,
            incarnation=self.incarnation,
            seq=self.seq,
            region=self.region,
            workers=tuple(self.now(sight, now_s) for sight in self.workers.values()),
            nodes=tuple(self._node_now(node, now_s) for node in self.nodes.values()),
            keeps=self.keeps,
        )

    def _is_old(self, heard: ClusterHeartbeat, now_s: float) -> bool:
        """An earlier incarnation counts again if the one that took its place is quiet: it was a stray, or has died."""
        if heard.incarnation == self.incarnation:
            return heard.seq <= self.seq
        return heard.incarnation in self._past and now_s - self._present_s < INCARNATION_QUIET_S

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
            workers=tuple(sight for part in parts for sight in part.workers),
            nodes=tuple(node for part in parts for node in part.nodes),
            keeps={job: count for part in parts for job, count in part.keeps.items()},
            forgotten=tuple(worker for part in parts for worker in part.forgotten),
            forgotten_nodes=tuple(node for part in parts for node in part.forgotten_nodes),
            part=1,
            parts=1,
        )

    def _why_unfit(self, changes: ClusterHeartbeat) -> str:
        if changes.incarnation != self.incarnation:
            return "its controller was not heard before"
        if not self._is_sure:
            return "what is known is not what its controller has"
        return "" if changes.base == self.seq else f"it changes report {changes.base}, and {self.seq} is known"

    def _mismatch(self, why: str, now_s: float) -> Mismatch:
        if now_s < self._ask_at_s:
            return Mismatch(why, None)
        self._ask_at_s = now_s + self._ask_delay_s
        self._ask_delay_s = min(2 * self._ask_delay_s, ASK_AGAIN_MOST_S)
        return Mismatch(why, ReportWhole(why))

    def _apply(self, report: ClusterHeartbeat, now_s: float) -> Changes:
        is_first = report.incarnation != self.incarnation
        if is_first and self.incarnation:
            self._past = (*self._past, self.incarnation)[-PAST_INCARNATIONS_AT_MOST:]
        if not report.base:
            self._clear()
        self._present_s = now_s
        self.incarnation, self.region, self.seq = report.incarnation, report.region, report.seq
        by_job: dict[JobName, JobChanges] = {}
        for worker in report.forgotten:
            self._forget(worker, by_job)
        for sight in report.workers:
            self._name(sight, by_job, now_s)
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

    def _name(self, sight: WorkerSight, by_job: dict[JobName, JobChanges], now_s: float) -> None:
        self._flip("worker", sight.worker, self.seq)
        self.workers[sight.worker] = sight
        self.by_job.setdefault(sight.job, {})[sight.worker] = sight
        self._changed_s.pop(sight.worker, None)
        if _has_countdown(sight):
            self._changed_s[sight.worker] = now_s
        by_job.setdefault(sight.job, JobChanges()).sights.append(sight)

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

    def now(self, sight: WorkerSight, now_s: float) -> WorkerSight:
        """With its durations as they are now."""
        named_s = self._changed_s.get(sight.worker)
        if named_s is None:
            return sight
        later_s, status, failure = now_s - named_s, sight.status, sight.start_failure
        if failure is not None:
            failure = replace(failure, for_s=failure.for_s + later_s)
        if status is not None and status.notice_s is not None:
            status = replace(status, notice_s=max(0.0, status.notice_s - later_s))
        silent_s = sight.silent_s + later_s if sight.presence is Presence.SILENT else sight.silent_s
        return replace(sight, silent_s=silent_s, status=status, start_failure=failure)

    def _node_now(self, node: NodeSight, now_s: float) -> NodeSight:
        if node.notice_s is None:
            return node
        return replace(node, notice_s=max(0.0, node.notice_s - (now_s - self._changed_s.get(node.node, now_s))))


def _has_countdown(sight: WorkerSight) -> bool:
    is_noticed = sight.status is not None and sight.status.notice_s is not None
    return is_noticed or sight.start_failure is not None or sight.presence is Presence.SILENT


class JobFeed:
    """What one job gets of each cluster: first the whole view, then what changes for it.

    While a controller lists workers that the job holds for lost, they are repeated: each time the job asks for their
    end."""

    def __init__(self, job: JobName) -> None:
        self._job = job
        self._told: dict[ClusterName, tuple[object, float]] = {}
        """The whole state that the job last got, and when it last heard of the cluster."""
        self._repeated_s: dict[ClusterName, float] = {}

    def event_of(self, changes: Changes, gone: Container[WorkerId], now_s: float) -> ClusterReported | None:
        """None if the job heard of the cluster a moment ago and nothing has changed for it."""
        view = changes.view
        mine = changes.by_job.get(self._job)
        told, told_s = self._told.get(view.cluster, (None, 0.0))
        is_whole = told is not view.whole
        if not is_whole and mine is None and now_s - told_s < HEARD_EVERY_S:
            return None
        self._told[view.cluster] = view.whole, now_s
        listed = view.by_job.get(self._job, {})
        if is_whole:
            sights = [view.now(sight, now_s) for sight in listed.values()]
        else:
            sights = mine.sights if mine is not None else []
        if not is_whole and now_s - self._repeated_s.get(view.cluster, 0.0) >= REPEAT_S:
            self._repeated_s[view.cluster] = now_s
            lost = (sight for worker, sight in listed.items() if worker in gone)
            sights = [*sights, *(sight for sight in lost if sight.presence is not Presence.GONE)]
        return ClusterReported(
            now_s,
            view.cluster,
            view.incarnation,
            view.keeps.get(self._job, 0),
            view.steps.get(self._job, 0),
            tuple(sights),
            tuple(mine.forgotten) if mine is not None and not is_whole else (),
            is_whole,
        )
