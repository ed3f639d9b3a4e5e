"""What a master hears on the bus: facts of workers, topologies of clusters, progress of trainers."""

from typing import TYPE_CHECKING

from controlplane.job import events
from controlplane.job.doubts import known_generation
from controlplane.job.learn import CLUSTER_FORGOTTEN_S, knows
from controlplane.jobs import inbox
from controlplane.jobs.fallback import event_of
from controlplane.jobs.inbox import Refused
from controlplane.jobs.runner import HeldJob
from controlplane.throughput.measuring import WorkerPlace
from messages import subjects
from messages.bounds import doubt_progress
from messages.clusters import ClusterHeartbeat
from messages.codec import Received
from messages.ids import ClusterName
from messages.worlds import Progress
from runtime.logs import Once, logger

if TYPE_CHECKING:
    from controlplane.master.master import Master

CLUSTER_FRESH_S = 5.0


class Hearing:
    def __init__(self, master: "Master") -> None:
        self._master = master
        self.clusters: dict[ClusterName, tuple[str, float]] = {}
        """The incarnation that was last heard, and when."""
        self._log = logger(epoch=master.epoch)
        self._log_once = Once()

    async def listen(self) -> None:
        bus = self._master.bus
        for fact in subjects.WORKER_FACTS:
            await bus.subscribe(subjects.worker_fact(None, None, fact), self._on_worker_fact)
        await bus.subscribe(subjects.cluster_heartbeat(), self._on_topology)
        await bus.subscribe(subjects.progress(), self._on_progress)

    def fresh_clusters(self) -> int:
        """That were heard a moment ago."""
        fresh_s = self._master.clock.monotonic_s() - CLUSTER_FRESH_S
        return sum(heard_s >= fresh_s for _, heard_s in self.clusters.values())

    def _on_worker_fact(self, subject: str, received: Received) -> None:
        heard = inbox.worker_fact(subject, received.message, self._master.clock.monotonic_s())
        if isinstance(heard, Refused):
            self._refuse(heard, subject)
            return
        held = self._master.jobs.get(heard.job)
        if held is None:
            self._refuse(Refused.UNKNOWN_JOB, subject)
            return
        self._master.post(held, heard.event)

    def _on_topology(self, subject: str, received: Received) -> None:
        heard = inbox.topology(subject, received.message)
        if isinstance(heard, Refused):
            self._refuse(heard, subject)
            return
        master, now_s = self._master, self._master.clock.monotonic_s()
        self._see_cluster(heard, now_s)
        self._forget_silent(now_s)
        if master.capacity is not None:
            master.capacity.see(heard)
            master.books.see(heard)
        named = inbox.jobs_of(heard)
        for held in master.jobs.values():
            if not held.ended or held.unsettled or held.name in named:
                master.post(held, events.ClusterReported(now_s, heard))

    def _see_cluster(self, heartbeat: ClusterHeartbeat, now_s: float) -> None:
        known = self.clusters.get(heartbeat.cluster)
        self.clusters[heartbeat.cluster] = (heartbeat.incarnation, now_s)
        if known is None or known[0] != heartbeat.incarnation:
            text = f"cluster {heartbeat.cluster} was heard: {len(heartbeat.workers)} workers"
            why = "its controller was started" if known is not None else "first heard by this master"
            fields = {"cluster": heartbeat.cluster, "region": heartbeat.region}
            self._master.announce_fleet("cluster_seen", text, why, **fields)

    def _forget_silent(self, now_s: float) -> None:
        """A cluster in which no job has anything is then as one that was never heard."""
        silent = [name for name, (_, heard_s) in self.clusters.items() if now_s - heard_s > CLUSTER_FORGOTTEN_S]
        for name in silent:
            if not self._is_used(name):
                del self.clusters[name]
                self._master.books.forget_cluster(name)
                if self._master.capacity is not None:
                    self._master.capacity.forget_cluster(name)

    def _is_used(self, cluster: ClusterName) -> bool:
        for held in self._master.jobs.values():
            known = held.state.clusters.get(cluster)
            if known is not None and known.keeps:
                return True
            if any(worker.cluster == cluster for worker in held.state.workers.values()):
                return True
        return self._master.capacity is not None and self._master.capacity.has_pools_in(cluster)

    def _on_progress(self, subject: str, received: Received) -> None:
        heard = inbox.progress(subject, received.message)
        if isinstance(heard, Refused):
            self._refuse(heard, subject)
            return
        held = self._master.jobs.get(heard.job)
        if held is None:
            self._refuse(Refused.UNKNOWN_JOB, subject)
            return
        if not knows(held.state, heard.worker):
            self._refuse(Refused.UNKNOWN_WORKER, subject)
            return
        if doubt_progress(heard, generation=known_generation(held.state)):
            self._refuse(Refused.DOUBTED, subject)
            return
        fallen = held.report(received.envelope.at.timestamp(), heard)
        if fallen is not None:
            self._master.announce(event_of(held.name, fallen, held.why_fell_back(fallen)))
        self._master.books.hear_progress(heard)
        self._measure(held, heard)

    def _measure(self, held: HeldJob, report: Progress) -> None:
        capacity, now_s = self._master.capacity, self._master.clock.monotonic_s()
        worker = held.state.workers.get(report.worker)
        if worker is None:
            return
        accelerator = capacity.accelerator_of(held.name, worker.cluster, worker.node) if capacity is not None else ""
        held.measures.hear(report, WorkerPlace(worker.cluster, worker.node, accelerator), now_s)
        if capacity is None:
            return
        news = held.measures.news(held.state.spec, held.state.workers.keys(), now_s)
        if news.profile is not None:
            capacity.measure(held.name, news.profile)
        if news.use:
            capacity.use(held.name, news.use)

    def _refuse(self, reason: Refused, subject: str) -> None:
        self._master.dropped[reason] += 1
        if self._log_once(reason):
            self._log.warning("message_dropped", reason=reason, subject=subject)
