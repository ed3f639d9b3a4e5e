"""Receives messages from the bus: facts of workers, reports of clusters, progress of trainers.

A message that does not fit its subject is refused and counted.
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
from messages.worlds import GatheredProgress, Progress
from runtime.logs import Once, logger

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
    """Its numbers cannot be true (`messages.bounds`)."""


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
        """Refused messages, by reason."""
        self._views: dict[ClusterName, ClusterView] = {}
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
            self._log.info("report_missed", cluster=view.cluster, why=mismatch.why)
            self._context.bus.publish(subjects.cluster_command(view.cluster), mismatch.ask)

    def _learn_changes(self, changes: Changes, now_s: float) -> None:
        view = changes.view
        if changes.is_first:
            self._announce(view, is_new=view.is_new)
        if self._capacity.has_fleet:
            self._books.see(view.cluster, changes.observations, changes.forgotten, is_whole=changes.is_whole)
            shown = view.show(changes, now_s)
            if shown is not None:
                self._capacity.hear_heartbeat(shown)
        for runner in self._registry.jobs.values():
            if not runner.ended or runner.unsettled or view.concerns(runner.name):
                event = runner.clusters.event_of(changes, runner.state.gone, now_s)
                if event is not None:
                    self._registry.post(runner, event)

    def _announce(self, view: ClusterView, *, is_new: bool) -> None:
        text = f"cluster {view.cluster} reports, number of workers: {len(view.workers)}"
        why = "first report to this master" if is_new else "its controller restarted"
        self._context.announce_fleet("cluster_seen", text, why, cluster=view.cluster, region=view.region)

    def _forget_silent(self, now_s: float) -> None:
        """Forgets clusters that are silent for long and in which no job has anything."""
        jobs = [runner.state for runner in self._registry.jobs.values()]
        for name in self._context.heard.unused(jobs, now_s):
            if not self._capacity.has_pools_in(name):
                self._context.heard.forget(name)
                self._views.pop(name, None)
                self._books.forget_cluster(name)

    def _on_progress(self, subject: str, received: Received) -> None:
        gathered = progress_of(subject, received.message)
        if isinstance(gathered, Refused):
            self._refuse(gathered, subject)
            return
        runner = self._registry.jobs.get(gathered.job)
        if runner is None:
            self._refuse(Refused.UNKNOWN_JOB, subject)
            return
        generation, at = known_generation(runner.state), received.envelope.at.timestamp()
        for report in gathered.reports:
            if report.job != runner.name:
                self._refuse(Refused.SUBJECT_MISMATCH, subject)
            elif not knows(runner.state, report.worker):
                self._refuse(Refused.UNKNOWN_WORKER, subject)
            elif doubt_progress(report, generation=generation):
                self._refuse(Refused.DOUBTED, subject)
            else:
                self._learn_progress(runner, report, at)

    def _learn_progress(self, runner: JobRunner, report: Progress, at: float) -> None:
        fallen = runner.report(at, report)
        if fallen is not None:
            self._context.announce(event_of_fallback(runner.name, fallen, runner.why_fell_back(fallen)))
        self._books.hear_progress(report)
        self._measure(runner, report)

    def _measure(self, runner: JobRunner, report: Progress) -> None:
        worker, now_s = runner.state.workers.get(report.worker), self._context.now_s()
        if worker is None:
            return
        accelerator = self._capacity.accelerator_of(runner.name, worker.cluster, worker.node)
        runner.measures.hear(report, WorkerPlace(worker.cluster, worker.node, accelerator), now_s)
        if not self._capacity.has_fleet:
            return
        found = runner.measures.changes(runner.state.spec, runner.state.workers.keys(), now_s)
        if found.profile is not None:
            self._capacity.measure(runner.name, found.profile)
        if found.use:
            self._capacity.use(runner.name, found.use)

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
        left = events.WorkerSaidLeft(at_s, status.worker, message.why, message.is_unfit)
        return ForJob(status.job, left)
    ended = message.exit if isinstance(message, workers.WorkerExited | workers.WorkerPeerLost) else None
    return ForJob(status.job, events.WorkerSpoke(at_s, status, ended))


def topology_of(subject: str, message: Message) -> ClusterHeartbeat | Refused:
    if not isinstance(message, ClusterHeartbeat):
        return Refused.UNEXPECTED_KIND
    return message if subjects.parse_cluster(subject) == message.cluster else Refused.SUBJECT_MISMATCH


def progress_of(subject: str, message: Message) -> GatheredProgress | Refused:
    if not isinstance(message, GatheredProgress):
        return Refused.UNEXPECTED_KIND
    return message if subjects.parse_job(subject) == message.job else Refused.SUBJECT_MISMATCH
