"""Masters that compete: each a process with the lease core and, for as long as it leads, the job core as its term.

A process can be paused: what comes meanwhile waits, and is dealt with afterwards in any order, so that a term may act
before its process hears that the lease is lost.
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
from controlplane.jobs.records import OnConflict, on_conflict
from controlplane.lease import decide as lease_core
from controlplane.lease import events as lease_events
from controlplane.lease import invariants as lease_invariants
from controlplane.lease.effects import Lead, LeaseEffect, ReadKey, StepDown, WriteKey
from controlplane.lease.state import LeaseSettings, new_lease
from controlplane.lease.state import Phase as LeasePhase
from messages.clusters import KeepWorkers, RemoveWorkers
from messages.ids import ClusterName, Epoch, Generation
from messages.records import Phase, Record
from messages.worlds import JobCommand, StoreAddress
from tests.simulation.actors import Actor
from tests.simulation.allocation import Allocation
from tests.simulation.clockwork import Broken
from tests.simulation.money import Money

if TYPE_CHECKING:
    from tests.simulation.system import System

LEASE = LeaseSettings()
KV_S = 0.0003
MEET_S = 0.2


class MasterProcess(Actor):
    def __init__(self, system: "System", name: str) -> None:
        super().__init__(system, name)
        chance = random.Random(f"clock {name} {system.clockwork.seed}")
        self._rate, self._offset_s = chance.uniform(0.92, 1.08), chance.uniform(0.0, 1000.0)
        self.paused = False
        self.term: Term | None = None
        self.lease = new_lease(name, LEASE)
        self._waiting: list[Callable[[], None]] = []
        self.later(0.0, self.tick)

    @property
    def now_s(self) -> float:
        """By its own clock, which runs faster or slower than others."""
        return self._offset_s + self._rate * self.system.clockwork.now_s

    @property
    def leads(self) -> bool:
        """By its own clock, at this very moment."""
        return self.alive and self.lease.may_act(self.now_s)

    def later(self, delay_s: float, what: Callable[[], None]) -> None:
        self.system.clockwork.after(delay_s / self._rate, lambda: self.do(what))

    def do(self, what: Callable[[], None]) -> None:
        if self.paused:
            self._waiting.append(what)
        elif self.alive:
            what()

    def tick(self) -> None:
        self.post(lease_events.Ticked(self.now_s))

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
                self.term = Term(self, epoch)
                self.system.terms.append(self.term)
            case StepDown(why):
                self.step_down(why)
            case _:
                assert_never(effect)

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
        """What was sent arrives, however slowly, also if it is no longer waited for."""

        def arrive() -> None:
            event = ask()
            self.send(self, lambda: self.do(lambda: self.post(event)))

        if self.connected:
            self.system.clockwork.send(arrive)
        unanswered = lease_events.Unanswered(0.0, attempt, "no answer in time")
        self.later(LEASE.answer_s, lambda: self.post(unanswered))


class LeaderKey:
    """With a time to live and compare-and-set; revisions count up, and nothing is left of a key that expired."""

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
    """One master's leadership: reads the record, adopts, decides, saves by compare-and-set, and only then speaks."""

    def __init__(self, process: MasterProcess, epoch: Epoch) -> None:
        self.process = process
        super().__init__(process.system, f"{process.name} in epoch {epoch}")
        self.connected = process.connected
        self.epoch = epoch
        self.job: Job | None = None
        self.revision = 0
        self.stores: set[Generation] = set()
        self.allocation: Allocation | None = None
        """Where nodes are bought."""
        self.later(self.system.clockwork.chance.uniform(0.005, 0.1), self.adopt)

    @property
    def now_s(self) -> float:
        return self.process.now_s

    def later(self, delay_s: float, what: Callable[[], None]) -> None:
        self.process.later(delay_s, lambda: what() if self.alive else None)

    def hear(self, make: Callable[[], job_events.JobEvent]) -> None:
        self.process.do(lambda: self._hear(replace(make(), at_s=self.now_s)))

    def _hear(self, event: job_events.JobEvent) -> None:
        if self.alive and self.allocation is not None and isinstance(event, job_events.ClusterReported):
            self.allocation.see(event.topology)
        self.post(event)

    def adopt(self) -> None:
        if not self.process.connected:
            self.later(0.5, self.adopt)
            return
        saved, self.revision = self.system.stored, self.system.stored_revision
        if saved is None:
            self.tell("starts")
            self.job = new_job(self.system.spec, epoch=self.epoch, at_s=self.now_s, submitted_at=0.0)
        else:
            self.tell(f"adopts generation {saved.generation}, {saved.phase}")
            self.job = adopted_job(self.system.spec, saved, epoch=self.epoch, at_s=self.now_s)
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
        """Its stores, which are its children, end with it."""
        self.alive = False
        self.stores.clear()
        if self.allocation is not None:
            self.allocation.end()

    def tick(self) -> None:
        self.post(job_events.Ticked(self.now_s))

    def post(self, event: job_events.JobEvent) -> None:
        if not self.alive or self.job is None:
            return
        before = self.job
        decision = job_core.decide(before, event)
        self.job = decision.state
        self._check_overtaken(before, event)
        broken = job_invariants.check(before, self.job, decision.effects)
        if broken:
            raise Broken(f"{self.name} after {event}: {'; '.join(broken)}")
        if self.job.record.phase is not before.record.phase:
            self.tell(f"{self.job.record.phase}: {self.job.why}")
        for effect in decision.effects:
            self.perform(effect)
        self.wake_at(decision.wake_at_s, self.tick)

    def _check_overtaken(self, before: Job, event: job_events.JobEvent) -> None:
        """A placement that answers an older want changes nothing."""
        newest = before.supply.want
        if not isinstance(event, job_events.PlacementChanged) or newest is None or self.job is None:
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
            case job_effects.Publish(message):
                self._publish(message)
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
        # On its way it depends on nobody any more, neither on its sender's life nor on its pauses.
        delay_s = clockwork.chance.uniform(0.5, 4.0) if late else KV_S
        clockwork.after(delay_s, lambda: self._arrive(record, expected))

    def _arrive(self, record: Record, expected: int) -> None:
        clockwork = self.system.clockwork
        written = self.system.write_record(record, expected)
        if clockwork.happens(clockwork.faults.save_fails, "save acknowledgement lost"):
            self.later(0.5, lambda: self.post(job_events.SaveFailed(self.now_s, "no acknowledgement")))
        elif written is None:
            self.later(KV_S, lambda: self._resolve_conflict(record))
        else:
            self.later(KV_S, lambda: self._saved(record, written))

    def _saved(self, record: Record, revision: int) -> None:
        self.revision = revision
        self.post(job_events.RecordSaved(self.now_s, record))

    def _resolve_conflict(self, record: Record) -> None:
        answer = on_conflict(self.system.stored, self.epoch)
        match answer:
            case OnConflict.WRITE_OVER:
                self.revision = self.system.stored_revision
                self._save(record)
            case OnConflict.ADOPT:
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

    def _publish(self, message: JobCommand) -> None:
        for worker in self.system.workers.values():
            self.send(worker, partial(worker.hear, message, self.epoch))

    def _check_kept(self, cluster: ClusterName, command: KeepWorkers | RemoveWorkers) -> None:
        """No order ends all workers of a cluster at once, where a world trains on sound nodes."""
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
