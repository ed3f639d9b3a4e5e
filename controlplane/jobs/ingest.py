"""What a master hears on the bus: facts of workers, topologies of clusters, progress of trainers.

A message that does not fit its subject is refused, and counted.
"""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from controlplane.capacity.interface import JobCapacity
from controlplane.job import events
from controlplane.job.doubts import known_generation
from controlplane.job.events import JobEvent
from controlplane.job.learn_workers import knows
from controlplane.jobs.cluster_views import Changes, ClusterView, Mismatch
from controlplane.jobs.context import TermContext
from controlplane.jobs.progress import event_of_fallback
from controlplane.jobs.registry import JobRegistry
from controlplane.jobs.runner import JobRunner
from controlplane.ledger.books import Books
from controlplane.throughput.measuring import WorkerPlace
from messages import subjects, workers
from messages.bounds import doubt_progress
from messages.clusters import ClusterHeartbeat
from messages.codec import Received
from messages.envelope import Message
from messages.ids import ClusterName, JobName
from messages.worlds import Progress
from runtime.logs import Once, logger

SHOWN_EVERY_S = 0.1
"""How often allocators look at a cluster in which no node changed."""

_STATUS_FACTS = (
    workers.WorkerJoined,
    workers.WorkerReady,
    workers.WorkerParking,
    workers.WorkerParked,
    workers.WorkerPosition,
    workers.WorkerSwitched,
    workers.WorkerExited,
    workers.WorkerPeerLost,
)


class Refused(StrEnum):
    UNEXPECTED_KIND = "unexpected_kind"
    SUBJECT_MISMATCH = "subject_mismatch"
    UNKNOWN_JOB = "unknown_job"
    UNKNOWN_WORKER = "unknown_worker"
    DOUBTED = "doubted"
    """Its numbers cannot be true; see `messages.bounds`."""


@dataclass(frozen=True, slots=True)
class ForJob:
    job: JobName
    event: JobEvent


class Ingest:
    def __init__(self, context: TermContext, registry: JobRegistry, books: Books, capacity: JobCapacity) -> None:
        self._context = context
        self._registry = registry
        self._books = books
        self._capacity = capacity
        self.dropped: Counter[str] = Counter()
        """Messages that were refused, by reason."""
        self._views: dict[ClusterName, ClusterView] = {}
        self.mismatches = 0
        """Reports that could not be applied, and for which the whole state was asked."""
        self._log = logger(epoch=context.leadership.epoch)
        self._log_once = Once()

    async def listen(self) -> None:
        bus = self._context.bus
        for fact in subjects.WORKER_FACTS:
            await bus.subscribe(subjects.worker_fact(None, None, fact), self._on_worker_fact)
        await bus.subscribe(subjects.cluster_heartbeat(), self._on_topology)
        await bus.subscribe(subjects.progress(), self._on_progress)

    def _on_worker_fact(self, subject: str, received: Received) -> None:
        heard = fact_of(subject, received.message, self._context.now_s())
        if isinstance(heard, Refused):
            self._refuse(heard, subject)
            return
        runner = self._registry.jobs.get(heard.job)
        if runner is None:
            self._refuse(Refused.UNKNOWN_JOB, subject)
            return
        self._registry.post(runner, heard.event)

    def _on_topology(self, subject: str, received: Received) -> None:
        heard = topology_of(subject, received.message)
        if isinstance(heard, Refused):
            self._refuse(heard, subject)
            return
        now_s = self._context.now_s()
        view = self._views.get(heard.cluster)
        if view is None:
            view = self._views[heard.cluster] = ClusterView(heard.cluster)
        outcome = view.take(heard, now_s)
        if view.heard_s == now_s:
            self._context.heard.hear(heard.cluster, now_s)
            self._forget_silent(now_s)
        if isinstance(outcome, Mismatch):
            self._ask_for_whole(view, outcome)
        elif outcome is not None:
            self._learn_changes(outcome, now_s)

    def _ask_for_whole(self, view: ClusterView, mismatch: Mismatch) -> None:
        if mismatch.ask is not None:
            self.mismatches += 1
            self._log.info("report_missed", cluster=view.cluster, why=mismatch.why)
            self._context.bus.publish(subjects.cluster_command(view.cluster), mismatch.ask)

    def _learn_changes(self, changes: Changes, now_s: float) -> None:
        view = changes.view
        if changes.is_first:
            self._announce(view, is_new=view.is_new)
        if self._capacity.has_fleet:
            self._books.see(view.cluster, changes.sights, changes.forgotten, is_whole=changes.is_whole)
            if changes.nodes or now_s - view.shown_s >= SHOWN_EVERY_S:
                view.shown_s = now_s
                self._capacity.see(view.topology(now_s))
        for runner in self._registry.jobs.values():
            if not runner.ended or runner.unsettled or view.concerns(runner.name):
                event = runner.clusters.event_of(changes, runner.state.gone, now_s)
                if event is not None:
                    self._registry.post(runner, event)

    def _announce(self, view: ClusterView, *, is_new: bool) -> None:
        text = f"cluster {view.cluster} was heard: {len(view.workers)} workers"
        why = "first heard by this master" if is_new else "its controller was started"
        self._context.announce_fleet("cluster_seen", text, why, cluster=view.cluster, region=view.region)

    def _forget_silent(self, now_s: float) -> None:
        """A cluster in which no job has anything is then as one that was never heard."""
        for name in self._context.heard.silent(now_s):
            if not self._is_used(name):
                self._context.heard.forget(name)
                self._views.pop(name, None)
                self._books.forget_cluster(name)

    def _is_used(self, cluster: ClusterName) -> bool:
        for runner in self._registry.jobs.values():
            known = runner.state.clusters.get(cluster)
            if known is not None and known.keeps:
                return True
            if any(worker.cluster == cluster for worker in runner.state.workers.values()):
                return True
        return self._capacity.has_pools_in(cluster)

    def _on_progress(self, subject: str, received: Received) -> None:
        heard = progress_of(subject, received.message)
        if isinstance(heard, Refused):
            self._refuse(heard, subject)
            return
        runner = self._registry.jobs.get(heard.job)
        if runner is None:
            self._refuse(Refused.UNKNOWN_JOB, subject)
            return
        if not knows(runner.state, heard.worker):
            self._refuse(Refused.UNKNOWN_WORKER, subject)
            return
        if doubt_progress(heard, generation=known_generation(runner.state)):
            self._refuse(Refused.DOUBTED, subject)
            return
        fallen = runner.report(received.envelope.at.timestamp(), heard)
        if fallen is not None:
            self._context.announce(event_of_fallback(runner.name, fallen, runner.why_fell_back(fallen)))
        self._books.hear_progress(heard)
        self._measure(runner, heard)

    def _measure(self, runner: JobRunner, report: Progress) -> None:
        worker, now_s = runner.state.workers.get(report.worker), self._context.now_s()
        if worker is None:
            return
        accelerator = self._capacity.accelerator_of(runner.name, worker.cluster, worker.node)
        runner.measures.hear(report, WorkerPlace(worker.cluster, worker.node, accelerator), now_s)
        if not self._capacity.has_fleet:
            return
        news = runner.measures.news(runner.state.spec, runner.state.workers.keys(), now_s)
        if news.profile is not None:
            self._capacity.measure(runner.name, news.profile)
        if news.use:
            self._capacity.use(runner.name, news.use)

    def _refuse(self, reason: Refused, subject: str) -> None:
        self.dropped[reason] += 1
        if self._log_once(reason):
            self._log.warning("message_dropped", reason=reason, subject=subject)


def fact_of(subject: str, message: Message, at_s: float) -> ForJob | Refused:
    speaker = subjects.parse_worker(subject)
    if speaker is None:
        return Refused.SUBJECT_MISMATCH
    if isinstance(message, workers.WorkerNoticed):
        if message.worker != speaker.worker:
            return Refused.SUBJECT_MISMATCH
        return ForJob(message.job, events.WorkerNoticeCame(at_s, message.worker, message.remaining_s, message.source))
    if not isinstance(message, (*_STATUS_FACTS, workers.WorkerLeft)):
        return Refused.UNEXPECTED_KIND
    status = message.status
    if (status.cluster, status.worker) != (speaker.cluster, speaker.worker):
        return Refused.SUBJECT_MISMATCH
    if isinstance(message, workers.WorkerLeft):
        left = events.WorkerSaidLeft(at_s, status.worker, status.cluster, message.why, message.is_unfit)
        return ForJob(status.job, left)
    ended = message.exit if isinstance(message, workers.WorkerExited | workers.WorkerPeerLost) else None
    return ForJob(status.job, events.WorkerSpoke(at_s, status, ended))


def topology_of(subject: str, message: Message) -> ClusterHeartbeat | Refused:
    if not isinstance(message, ClusterHeartbeat):
        return Refused.UNEXPECTED_KIND
    return message if subjects.parse_cluster(subject) == message.cluster else Refused.SUBJECT_MISMATCH


def progress_of(subject: str, message: Message) -> Progress | Refused:
    if not isinstance(message, Progress):
        return Refused.UNEXPECTED_KIND
    return message if subjects.parse_job(subject) == message.job else Refused.SUBJECT_MISMATCH
