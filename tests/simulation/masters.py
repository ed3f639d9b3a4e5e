"""Masters that compete: each a process with the lease core and, for as long as it leads, the job core as its term.

A process can be paused: events that come meanwhile wait and are handled afterwards in any order, so that a term may act
before its process learns that the lease is lost. Or only its main loop is stuck: then the term waits, but the lease,
which has its own thread, does not.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, assert_never

from agents.cluster import events as cluster_events
from controlplane.job import decide as job_core
from controlplane.job import effects as job_effects
from controlplane.job import events as job_events
from controlplane.job import invariants as job_invariants
from controlplane.job.state import Job, adopted_job, new_job
from controlplane.job.wants import want_nodes
from controlplane.jobs.cluster_views import ClusterView, JobFeed, Mismatch
from controlplane.jobs.records import OnConflict, on_conflict, read_whole_record
from controlplane.jobs.worlds import JobWorlds, RecordLayout
from controlplane.lease import decide as lease_core
from controlplane.lease import events as lease_events
from controlplane.lease import invariants as lease_invariants
from controlplane.lease.effects import Lead, LeaseEffect, ReadKey, StepDown, WriteKey
from controlplane.lease.state import LeaseSettings, new_lease
from controlplane.lease.state import Phase as LeasePhase
from messages.clusters import ClusterHeartbeat, KeepWorkers, RemoveWorkers
from messages.decoding import NotStorable
from messages.ids import ClusterName, Epoch, Generation, JobName, WorkerId
from messages.records import Phase, Record
from messages.subjects import world_chunks
from messages.worlds import JobCommand, StoreAddress
from runtime.role import LATE_S
from runtime.stored_worlds import write_chunks
from tests.simulation.actors import Actor
from tests.simulation.allocation import Allocation
from tests.simulation.clockwork import Broken
from tests.simulation.money import Money
from tests.simulation.stored import at_once

if TYPE_CHECKING:
    from tests.simulation.system import System

LEASE = LeaseSettings()
KV_S = 0.0003
MEET_S = 0.2
BATCHES = 0.3
"""Share of events that are decided on in a batch with later events."""
BATCH_S = 0.02


class MasterProcess(Actor):
    def __init__(self, system: "System", name: str) -> None:
        super().__init__(system, name)
        chance = random.Random(f"clock {name} {system.clockwork.seed}")
        self._rate, self._offset_s = chance.uniform(0.92, 1.08), chance.uniform(0.0, 1000.0)
        self.paused = False
        self.term: Term | None = None
        self.lease = new_lease(name, LEASE)
        self._waiting: list[Callable[[], None]] = []
        self.stuck_since_s: float | None = None
        """Time since which its main loop is stuck, by its own clock; None while it runs."""
        self._behind: list[Callable[[], None]] = []
        self._notices: list[Callable[[], None]] = []
        self.later(0.0, self.tick)

    @property
    def now_s(self) -> float:
        """The time of its own clock, which runs faster or slower than others."""
        return self._offset_s + self._rate * self.system.clockwork.now_s

    @property
    def leads(self) -> bool:
        """True if it leads now, by its own clock."""
        return self.alive and self.lease.may_act(self.now_s)

    @property
    def is_stuck_for_too_long(self) -> bool:
        """True if it is stuck for so long that it must have lost the lease."""
        since_s = self.stuck_since_s
        return since_s is not None and self.now_s > since_s + LEASE.stuck_after_s + LEASE.ttl_s

    def later(self, delay_s: float, what: Callable[[], None]) -> None:
        self.system.clockwork.after(delay_s / self._rate, lambda: self.do(what))

    def do(self, what: Callable[[], None]) -> None:
        if self.paused:
            self._waiting.append(what)
        elif self.alive:
            what()

    def do_in_main_loop(self, what: Callable[[], None]) -> None:
        self.do(lambda: what() if self.stuck_since_s is None else self._behind.append(what))

    def tick(self) -> None:
        self.post(lease_events.Ticked(self.now_s, self.now_s if self.stuck_since_s is None else self.stuck_since_s))

    def post(self, event: lease_events.LeaseEvent) -> None:
        before = self.lease
        decision = lease_core.decide(before, replace(event, at_s=self.now_s))
        self.lease = decision.state
        broken = lease_invariants.check(before, self.lease, decision.effects, self.now_s)
        if broken:
            raise Broken(f"{self.name} after {event}: {'; '.join(broken)}")
        for effect in decision.effects:
            self.perform(effect)
        self.wake_at(decision.wake_at_s, self.tick)

    def perform(self, effect: LeaseEffect) -> None:
        key = self.system.key
        match effect:
            case ReadKey(attempt):
                self._call(attempt, lambda: lease_events.KeyRead(0.0, attempt, key.revision, key.holder))
            case WriteKey(attempt, revision):
                self._call(attempt, lambda: self._write(attempt, revision))
                if not self.paused and self.system.clockwork.happens(0.005, "paused while it writes the lease"):
                    self.pause(self.system.clockwork.chance.choice((0.3, 1.5, 2.1, 3.0)))
            case Lead(epoch):
                self._notify(lambda: self._lead(epoch))
            case StepDown(why):
                self._notify(lambda: self.step_down(why))
            case _:
                assert_never(effect)

    def _notify(self, what: Callable[[], None]) -> None:
        if self.stuck_since_s is None:
            what()
        else:
            self._notices.append(what)

    def _lead(self, epoch: Epoch) -> None:
        self.term = Term(self, epoch)
        self.system.terms.append(self.term)

    def step_down(self, why: str) -> None:
        self.tell(f"leads no more: {why}")
        if self.term is not None:
            self.term.end()
        self.later(0.05, lambda: self.post(lease_events.WorkEnded(0.0)))

    def crash(self) -> None:
        self.alive = False
        if self.term is not None:
            self.term.end()

    def pause(self, pause_s: float) -> None:
        self.paused = True
        self.system.clockwork.after(pause_s, self.resume)

    def resume(self) -> None:
        if not self.paused:
            return
        self.paused = False
        waiting, self._waiting = self._waiting, []
        self.system.clockwork.chance.shuffle(waiting)
        for what in waiting:
            self.do(what)

    def block(self, block_s: float) -> None:
        self.stuck_since_s = self.now_s
        self.system.clockwork.after(block_s, lambda: self.do(self._unblock))

    def _unblock(self) -> None:
        """Continues the main loop; the term acts before it learns the state of the lease."""
        self.stuck_since_s = None
        waiting = [*self._behind, *self._notices]
        self._behind, self._notices = [], []
        for what in waiting:
            self.do(what)

    def reconnect(self, connected: bool) -> None:
        self.connected = connected
        if self.term is not None:
            self.term.connected = connected
        event = lease_events.BusBack if connected else lease_events.BusLost
        self.do(lambda: self.post(event(0.0)))

    def see(self, revision: int, holder: str | None) -> None:
        self.send(self, lambda: self.do(lambda: self.post(lease_events.KeySeen(0.0, revision, holder))))

    def _write(self, attempt: int, revision: int) -> lease_events.LeaseEvent:
        written = self.system.key.write(revision, self.name)
        if written is None:
            return lease_events.Conflicted(0.0, attempt)
        return lease_events.Written(0.0, attempt, written)

    def _call(self, attempt: int, ask: Callable[[], lease_events.LeaseEvent]) -> None:
        """Sends a request, which arrives even late, when its sender no longer waits for it."""

        def arrive() -> None:
            event = ask()
            self.send(self, lambda: self.do(lambda: self.post(event)))

        if self.connected:
            self.system.clockwork.send(arrive)
        unanswered = lease_events.Unanswered(0.0, attempt, "no answer in time")
        self.later(LEASE.answer_s, lambda: self.post(unanswered))


class LeaderKey:
    """The leader's key with a time to live and compare-and-set; revisions increase, and an expired key is gone."""

    def __init__(self, system: "System") -> None:
        self.revision = 0
        self.holder: str | None = None
        self.newest = Epoch(0)
        self._system = system

    def write(self, expected: int, holder: str) -> int | None:
        if expected != self.revision:
            return None
        self.newest = Epoch(self.newest + 1)
        self.revision, self.holder = self.newest, holder
        self._system.clockwork.after(LEASE.ttl_s, partial(self._expire, self.revision))
        self._system.tell_of_leader()
        return self.revision

    def _expire(self, revision: int) -> None:
        if revision == self.revision:
            self.revision, self.holder = 0, None


class Term(Actor):
    """One master's leadership: reads the record, takes over, decides, saves by compare-and-set, and then publishes."""

    def __init__(self, process: MasterProcess, epoch: Epoch) -> None:
        self.process = process
        super().__init__(process.system, f"{process.name} in epoch {epoch}")
        self.connected = process.connected
        self.epoch = epoch
        self.job: Job | None = None
        self.revision = 0
        self.stores: set[Generation] = set()
        self.worlds = JobWorlds(JobName(self.system.spec.name), epoch, self.system.limits)
        self._waiting: list[job_events.JobEvent] = []
        self._batching = random.Random(self.system.clockwork.seed)
        self._due_s: float | None = None
        self.views: dict[ClusterName, ClusterView] = {}
        self.feed = JobFeed(JobName(self.system.spec.name))
        self.allocation: Allocation | None = None
        """Set if the system buys nodes."""
        self.later(self.system.clockwork.chance.uniform(0.005, 0.1), self.adopt)

    @property
    def now_s(self) -> float:
        return self.process.now_s

    def later(self, delay_s: float, what: Callable[[], None]) -> None:
        self.process.later(delay_s, lambda: self.process.do_in_main_loop(lambda: what() if self.alive else None))

    def hear(self, make: Callable[[], job_events.JobEvent]) -> None:
        self.process.do_in_main_loop(lambda: self.post(replace(make(), at_s=self.now_s)))

    def hear_report(self, report: ClusterHeartbeat) -> None:
        self.process.do_in_main_loop(lambda: self._take(report))

    def _take(self, report: ClusterHeartbeat) -> None:
        if not self.alive:
            return
        view = self.views.setdefault(report.cluster, ClusterView(report.cluster))
        outcome = view.take(report, self.now_s)
        if isinstance(outcome, Mismatch):
            controller = self.system.controllers.get(report.cluster)
            if outcome.ask is not None and controller is not None:
                self.send(controller, controller.report_whole)
        elif outcome is not None and self.job is not None:
            self.system.check_view(view, self.now_s)
            if self.allocation is not None:
                self.allocation.see(view.topology(self.now_s))
            event = self.feed.event_of(outcome, self.job.gone, self.now_s)
            if event is not None:
                self.post(event)

    def adopt(self) -> None:
        if not self.process.connected:
            self.later(0.5, self.adopt)
            return
        saved, self.revision = self.system.stored, self.system.stored_revision
        self.worlds = JobWorlds(JobName(self.system.spec.name), self.epoch, self.system.limits)
        if saved is None:
            self.tell("starts")
            self.job = new_job(self.system.spec, epoch=self.epoch, at_s=self.now_s, submitted_at=0.0)
        else:
            self.tell(f"adopts generation {saved.generation}, {saved.phase}")
            stored = at_once(read_whole_record(self.system.bucket, self.worlds.job))
            if stored is None or stored.record != saved:
                raise Broken(f"{self.name} reads another record than was stored")
            self.worlds.adopt(saved, stored.worlds)
            self.job = adopted_job(self.system.spec, saved, epoch=self.epoch, at_s=self.now_s)
        self.feed = JobFeed(self.job.name)
        self.job, [first] = want_nodes(self.job, self.now_s)
        market = self.system.market
        if market is not None:
            if self.allocation is None:
                Money(self, self.job, market, self.system.ledger)
            else:
                self.allocation.end()
            self.allocation = Allocation(self, self.job, first.want, market)
        self.tick()

    def end(self) -> None:
        """Ends the term and its stores, which are its child processes."""
        self.alive = False
        self.stores.clear()
        if self.allocation is not None:
            self.allocation.end()

    def tick(self) -> None:
        self.post(job_events.Ticked(self.now_s))

    def post(self, event: job_events.JobEvent) -> None:
        if not self.alive or self.job is None:
            return
        self._waiting.append(event)
        if self._batching.random() >= BATCHES:
            self._decide()
        elif len(self._waiting) == 1:
            self.later(BATCH_S, self._decide)

    def _decide(self) -> None:
        if not self.alive or self.job is None or not self._waiting:
            return
        batch, self._waiting = self._waiting, []
        if self._due_s is not None and self.now_s > self._due_s + LATE_S:
            batch.insert(0, job_events.FellBehind(self.now_s))
        before = self.job
        decision = job_core.decide(before, *batch)
        self.job, self._due_s = decision.state, decision.wake_at_s
        placed = [event for event in batch if isinstance(event, job_events.PlacementChanged)]
        if len(placed) == 1:
            self._check_overtaken(before, placed[0])
        broken = job_invariants.check(before, self.job, decision.effects)
        if broken:
            raise Broken(f"{self.name} after {batch}: {'; '.join(broken)}")
        if self.job.record.phase is not before.record.phase:
            self.tell(f"{self.job.record.phase}: {self.job.why}")
        for effect in decision.effects:
            self.perform(effect)
        self.wake_at(decision.wake_at_s, self.tick)

    def _check_overtaken(self, before: Job, event: job_events.PlacementChanged) -> None:
        """Checks that a placement for an older request changes nothing."""
        newest = before.supply.want
        if newest is None or self.job is None:
            return
        if event.want < newest.number:
            self.system.clockwork.made["placement that a want overtook"] += 1
            if self.job.supply.placement != before.supply.placement:
                raise Broken(f"{self.name} obeyed a placement of want {event.want} after want {newest.number}")

    def perform(self, effect: job_effects.JobEffect) -> None:
        match effect:
            case job_effects.SaveRecord(record):
                self._save(record)
            case job_effects.StartStore(generation):
                self._start_store(generation)
            case job_effects.StopStores():
                self.stores.clear()
            case job_effects.WatchStore(generation):
                self.later(MEET_S, lambda: self.post(job_events.RanksMet(self.now_s, generation)))
            case job_effects.Publish(message, to):
                self._publish(message, {worker for _, worker in to})
            case job_effects.TellCluster(cluster, command):
                self._tell_cluster(cluster, command)
            case job_effects.WantNodes(want):
                if self.allocation is not None:
                    self.allocation.want(want)
            case job_effects.Announce(kind, text, why, _):
                self.tell(f"[{kind}] {text} ({why.splitlines()[0] if why else ''})")
            case _:
                assert_never(effect)

    def _save(self, record: Record) -> None:
        clockwork = self.system.clockwork
        if not self.process.leads:
            self.later(0.5, lambda: self.post(job_events.SaveFailed(self.now_s, "it does not lead any more")))
            return
        if not self.process.connected or clockwork.happens(clockwork.faults.save_fails, "save failed"):
            self.later(0.5, lambda: self.post(job_events.SaveFailed(self.now_s, "the bus is away")))
            return
        self.system.check_alone(self.process)
        late = clockwork.happens(clockwork.faults.save_fails, "save arrived late")
        expected = self.revision
        try:
            layout = self.worlds.layout(record)
        except NotStorable as error:
            raise Broken(f"the record of generation {record.generation} cannot be stored: {error}") from error
        if not layout.chunks:
            self._send_record(record, layout, expected, late)
            return

        def store_chunks() -> None:
            at_once(write_chunks(self.system.bucket, layout.chunks))
            if clockwork.happens(0.02, "leader crashed between chunks and record"):
                self.system.crash_master(self.process)
            self.later(KV_S, lambda: self._send_record(record, layout, expected, late))

        clockwork.after(KV_S, store_chunks)

    def _send_record(self, record: Record, layout: RecordLayout, expected: int, late: bool) -> None:
        """Sends a record, which arrives even if its sender dies or pauses."""
        delay_s = self.system.clockwork.chance.uniform(0.5, 4.0) if late else KV_S
        self.system.clockwork.after(delay_s, lambda: self._arrive(record, layout, expected))

    def _arrive(self, record: Record, layout: RecordLayout, expected: int) -> None:
        clockwork = self.system.clockwork
        written = self.system.write_record(record, layout, expected)
        if clockwork.happens(clockwork.faults.save_fails, "save acknowledgement lost"):
            self.later(0.5, lambda: self.post(job_events.SaveFailed(self.now_s, "no acknowledgement")))
        elif written is None:
            self.later(KV_S, lambda: self._resolve_conflict(record))
        else:
            self.later(KV_S, lambda: self._saved(record, layout, written))

    def _saved(self, record: Record, layout: RecordLayout, revision: int) -> None:
        self.revision = revision
        if self.worlds.saved(record, layout.worlds):
            self._remove_old_chunks()
        self.post(job_events.RecordSaved(self.now_s, record))

    def _remove_old_chunks(self) -> None:
        """Deletes old chunks; a deletion may arrive late, when another master leads."""
        self.worlds.removed_old_chunks()
        bucket = self.system.bucket
        keys = at_once(bucket.revisions(world_chunks(self.worlds.job)))
        for key in self.worlds.old_chunks(keys):
            self.system.clockwork.after(KV_S, partial(at_once, bucket.delete(key)))

    def _resolve_conflict(self, record: Record) -> None:
        answer = on_conflict(self.system.stored, self.epoch)
        match answer:
            case OnConflict.WRITE_OVER:
                self.revision = self.system.stored_revision
                self._save(record)
            case OnConflict.READ_AGAIN:
                self.adopt()
            case OnConflict.YIELD:
                self.post(job_events.SaveFailed(self.now_s, "a newer master wrote it"))
            case _:
                assert_never(answer)

    def _start_store(self, generation: Generation) -> None:
        clockwork = self.system.clockwork

        def started() -> None:
            if clockwork.happens(clockwork.faults.store_fails, "store did not start"):
                self.post(job_events.StoreFailed(self.now_s, generation, "no port"))
                return
            self.stores = {max(generation, *self.stores)} if self.stores else {generation}
            address = StoreAddress("127.0.0.1", 29400 + generation % 100)
            self.post(job_events.StoreStarted(self.now_s, generation, address))

        self.later(clockwork.chance.choice((0.01, 0.05, 2.0)), started)

    def lose_store(self) -> None:
        self.stores.clear()
        self.hear(lambda: job_events.StoreLost(self.now_s))

    def _publish(self, message: JobCommand, to: set[WorkerId]) -> None:
        sent = self.worlds.message_to_one(message) if to else self.worlds.message_to_all(message)
        for worker in self.system.workers.values():
            if not to or worker.id in to:
                self.send(worker, partial(worker.hear, sent, self.epoch))

    def _check_kept(self, cluster: ClusterName, command: KeepWorkers | RemoveWorkers) -> None:
        """Checks that no order ends all workers of a cluster in which a world trains on sound nodes."""
        job = self.job
        if job is None or job.record.phase is not Phase.RUNNING or job.record.assignment is None:
            return
        if not isinstance(command, KeepWorkers) or command.count > 0:
            return
        members = {member.worker for member in job.record.assignment.members if member.cluster == cluster}
        hurt = [each.id for each in self.system.workers.values() if each.id in members and self.system.is_sound(each)]
        if hurt:
            raise Broken(f"{self.name} tells cluster {cluster} to keep no worker, and {', '.join(hurt)} train there")

    def _tell_cluster(self, cluster: ClusterName, command: KeepWorkers | RemoveWorkers) -> None:
        controller = self.system.controllers.get(cluster)
        if controller is None:
            return
        self._check_kept(cluster, command)

        def deliver() -> None:
            if isinstance(command, KeepWorkers):
                controller.post(cluster_events.KeepAsked(controller.now_s, command, self.epoch))
            else:
                controller.post(cluster_events.RemoveAsked(controller.now_s, command, self.epoch))

        self.send(controller, deliver)


def is_leader(process: MasterProcess) -> bool:
    return process.alive and process.lease.phase is LeasePhase.LEADER
