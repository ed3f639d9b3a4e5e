"""The production cores, each with a simulated shell: same decisions, virtual hands."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from agents.cluster import decide as cluster_core
from agents.cluster import effects as cluster_effects
from agents.cluster import events as cluster_events
from agents.cluster import invariants as cluster_invariants
from agents.cluster.state import ClusterState, Known, new_cluster
from agents.worker import decide as worker_core
from agents.worker import effects as worker_effects
from agents.worker import events as worker_events
from agents.worker import invariants as worker_invariants
from agents.worker.state import WorkerIdentity, new_worker
from controlplane.job import decide as job_core
from controlplane.job import effects as job_effects
from controlplane.job import events as job_events
from controlplane.job import invariants as job_invariants
from controlplane.job.state import Job, Record, adopted_job, new_job
from messages.clusters import KeepWorkers, RemoveWorkers
from messages.ids import ClusterName, Epoch, Generation, WorkerId
from messages.jobs import JobSpec
from messages.workers import TrainerExit
from messages.worlds import Assignment, Halt, Release, StoreAddress
from tests.simulation.clockwork import Broken
from tests.simulation.training import Trainer

if TYPE_CHECKING:
    from tests.simulation.system import System

CLUSTER = ClusterName("local")
SOME_TIME_S = 1e-5
"""No process wakes twice at the same moment."""


class Actor:
    """A role's process: it can crash, be cut off from the bus, and wakes itself."""

    def __init__(self, system: "System", name: str) -> None:
        self.system = system
        self.name = name
        self.alive = True
        self.connected = True
        self._wake = 0

    @property
    def now_s(self) -> float:
        return self.system.clockwork.now_s

    def tell(self, text: str) -> None:
        self.system.clockwork.tell(f"{self.name}: {text}")

    def later(self, delay_s: float, what: Callable[[], None]) -> None:
        """Unless it is dead by then."""
        self.system.clockwork.after(delay_s, lambda: what() if self.alive else None)

    def send(self, receiver: "Actor", deliver: Callable[[], None]) -> None:
        """Over the bus: both ends must be connected, the receiver when it arrives."""
        if not self.connected:
            return
        self.system.clockwork.send(lambda: deliver() if receiver.alive and receiver.connected else None)

    def wake_at(self, at_s: float | None, tick: Callable[[], None]) -> None:
        self._wake += 1
        mine = self._wake
        if at_s is not None:
            self.later(max(SOME_TIME_S, at_s - self.now_s), lambda: tick() if mine == self._wake else None)


class MasterActor(Actor):
    def __init__(self, system: "System", spec: JobSpec, epoch: Epoch, saved: Record | None) -> None:
        super().__init__(system, f"master {epoch}")
        self.epoch = epoch
        self.job: Job = (
            new_job(spec, epoch=epoch, at_s=self.now_s, submitted_at=0.0)
            if saved is None
            else adopted_job(spec, saved, epoch=epoch, at_s=self.now_s)
        )
        self.stores: set[Generation] = set()
        self.tell("starts" if saved is None else f"adopts generation {saved.generation}, {saved.phase}")
        self.later(0.0, self.tick)

    def tick(self) -> None:
        self.post(job_events.Ticked(self.now_s))

    def post(self, event: job_events.JobEvent) -> None:
        if not self.alive:
            return
        before = self.job
        decision = job_core.decide(before, event)
        self.job = decision.state
        broken = job_invariants.check(before, self.job, decision.effects)
        if broken:
            raise Broken(f"{self.name} after {event}: {'; '.join(broken)}")
        if self.job.record.phase is not before.record.phase:
            self.tell(f"{self.job.record.phase}: {self.job.why}")
            self.system.check_claim(self.job)
        for effect in decision.effects:
            self.perform(effect)
        self.wake_at(decision.wake_at_s, self.tick)

    def perform(self, effect: job_effects.JobEffect) -> None:
        match effect:
            case job_effects.SaveRecord(record):
                self._save(record)
            case job_effects.StartStore(generation):
                self._start_store(generation)
            case job_effects.StopStores():
                self.stores.clear()
            case job_effects.WatchStore():
                pass
            case job_effects.Publish(message):
                self._publish(message)
            case job_effects.TellCluster(_, command):
                self._tell_cluster(command)
            case job_effects.Announce(kind, text, why, _):
                self.tell(f"[{kind}] {text} ({why.splitlines()[0] if why else ''})")
            case _:
                assert_never(effect)

    def _save(self, record: Record) -> None:
        clockwork = self.system.clockwork
        if not self.connected or clockwork.happens(clockwork.faults.save_fails, "save failed"):
            self.later(0.5, lambda: self.post(job_events.SaveFailed(self.now_s, "the bus is away")))
            return

        def write() -> None:
            stored = self.system.stored
            if stored is not None and stored.epoch > self.epoch:
                self.alive = False
                return
            self.system.stored = record
            if clockwork.happens(clockwork.faults.save_fails, "save acknowledgement lost"):
                self.later(0.5, lambda: self.post(job_events.SaveFailed(self.now_s, "no acknowledgement")))
            else:
                self.later(0.0003, lambda: self.post(job_events.RecordSaved(self.now_s, record)))

        self.later(0.0003, write)

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
        self.post(job_events.StoreLost(self.now_s))

    def _publish(self, message: Assignment | Halt | Release) -> None:
        for worker in self.system.workers.values():
            self.send(worker, partial(worker.hear, message, self.epoch))

    def _tell_cluster(self, command: KeepWorkers | RemoveWorkers) -> None:
        controller = self.system.controller

        def deliver() -> None:
            if isinstance(command, KeepWorkers):
                controller.post(cluster_events.KeepAsked(self.now_s, command, self.epoch))
            else:
                controller.post(cluster_events.RemoveAsked(self.now_s, command, self.epoch))

        self.send(controller, deliver)

    def reconnect(self, connected: bool) -> None:
        self.connected = connected


class ControllerActor(Actor):
    def __init__(self, system: "System", incarnation: str, known: Known | None) -> None:
        super().__init__(system, f"controller {incarnation}")
        self.state: ClusterState = new_cluster(CLUSTER, incarnation, "", self.now_s, known)
        self.tell("starts" if known is None else f"adopts {len(known.places)} places")
        for place in known.places if known is not None else ():
            self.later(0.01, partial(self._look_for, place.uid))
        self.later(0.0, self.tick)
        self.watch_leader()

    def tick(self) -> None:
        self.post(cluster_events.Ticked(self.now_s))

    def post(self, event: cluster_events.ClusterEvent) -> None:
        if not self.alive:
            return
        before = self.state
        decision = cluster_core.decide(before, event)
        self.state = decision.state
        broken = cluster_invariants.check(before, self.state)
        if broken:
            raise Broken(f"{self.name} after {event}: {'; '.join(broken)}")
        for effect in decision.effects:
            self.perform(effect)
        self.wake_at(decision.wake_at_s, self.tick)

    def perform(self, effect: cluster_effects.ClusterEffect) -> None:
        match effect:
            case cluster_effects.StartPlace(uid, job, template):
                worker = self.system.start_worker(uid, job, template.slots)
                self.later(0.01, lambda: self.post(cluster_events.PlaceStarted(self.now_s, uid, worker.pid)))
            case cluster_effects.EndPlace(uid, grace_s, why):
                self._end(uid, grace_s, why)
            case cluster_effects.TellNotice(noticed, _, remaining_s, source):
                master = self.system.master
                told = job_events.WorkerNoticeCame(self.now_s, noticed, remaining_s, source)
                self.send(master, lambda: master.post(told))
            case cluster_effects.SendTopology(heartbeat):
                master = self.system.master
                self.send(master, lambda: master.post(job_events.ClusterReported(self.now_s, heartbeat)))
            case cluster_effects.SaveKnown(known):
                self._save(known)
            case _:
                assert_never(effect)

    def watch_leader(self) -> None:
        """As a watch on the leader's key tells: late, but not never."""

        def tell() -> None:
            if self.connected:
                self.post(cluster_events.LeaderSeen(self.now_s, self.system.claim))

        self.later(self.system.clockwork.chance.uniform(0.001, 2.0), tell)

    def ended(self, uid: str, why: str) -> None:
        self.later(0.002, lambda: self.post(cluster_events.PlaceEnded(self.now_s, uid, why)))

    def reconnect(self, connected: bool) -> None:
        self.connected = connected
        event = cluster_events.BusBack if connected else cluster_events.BusLost
        self.post(event(self.now_s))
        if connected:
            self.watch_leader()

    def _save(self, known: Known) -> None:
        clockwork = self.system.clockwork
        if not self.connected or clockwork.happens(clockwork.faults.save_fails, "save failed"):
            self.later(0.5, lambda: self.post(cluster_events.SaveFailed(self.now_s, "the bus is away")))
            return
        self.system.known = known
        self.later(0.0003, lambda: self.post(cluster_events.KnownSaved(self.now_s)))

    def _look_for(self, uid: str) -> None:
        worker = self.system.workers.get(uid)
        if worker is not None and worker.alive:
            self.post(cluster_events.PlaceStarted(self.now_s, uid, worker.pid))
        else:
            self.post(cluster_events.PlaceEnded(self.now_s, uid, "not found after a restart"))

    def _end(self, uid: str, grace_s: float, why: str) -> None:
        worker = self.system.workers.get(uid)
        if worker is None or not worker.alive:
            self.ended(uid, why)
            return
        worker.post(worker_events.NoticeCame(self.now_s, grace_s, "signal"))
        self.later(grace_s, lambda: worker.kill(why))


class WorkerActor(Actor):
    def __init__(self, system: "System", uid: str, identity: WorkerIdentity) -> None:
        super().__init__(system, f"worker {identity.worker}")
        self.uid = uid
        self.pid = identity.pid
        self.state = new_worker(identity, self.now_s)
        self.trainers: list[Trainer] = []
        self.host = 0
        self.later(0.05, self.tick)
        self.later(0.05, self.read_kept)

    @property
    def id(self) -> WorkerId:
        return self.state.identity.worker

    def tick(self) -> None:
        self.post(worker_events.Ticked(self.now_s))

    def post(self, event: worker_events.WorkerEvent) -> None:
        if not self.alive:
            return
        before = self.state
        decision = worker_core.decide(before, event)
        self.state = decision.state
        broken = worker_invariants.check(before, self.state)
        if broken:
            raise Broken(f"{self.name} after {event}: {'; '.join(broken)}")
        for effect in decision.effects:
            self.perform(effect)
        self.wake_at(decision.wake_at_s, self.tick)

    def hear(self, message: Assignment | Halt | Release, epoch: Epoch) -> None:
        match message:
            case Assignment():
                self.post(worker_events.AssignmentHeard(self.now_s, message, epoch))
            case Halt():
                self.post(worker_events.HaltHeard(self.now_s, message, epoch))
            case Release():
                self.post(worker_events.ReleaseHeard(self.now_s, message, epoch))

    def read_kept(self) -> None:
        """Whoever comes late, or was away, reads the last world from KV."""
        stored = self.system.stored
        if not self.connected or stored is None:
            return
        if stored.assignment is not None:
            self.hear(stored.assignment, stored.epoch)
        if stored.generation > 0 and (stored.assignment is None or stored.assignment.generation < stored.generation):
            self.hear(Halt(self.state.identity.job, stored.generation, stored.why, 1.0), stored.epoch)

    def perform(self, effect: worker_effects.WorkerEffect) -> None:
        match effect:
            case worker_effects.StartHost():
                self.host += 1
                host = self.host
                warm_s = self.system.clockwork.chance.uniform(0.5, 3.0)
                self.later(
                    warm_s, lambda: self.post(worker_events.HostWarmed(self.now_s)) if host == self.host else None
                )
            case worker_effects.ForkTrainers(assignment):
                self._fork(assignment)
            case worker_effects.StopTrainers(generation, grace_s):
                self._stop(generation, grace_s)
            case worker_effects.TellFact(fact, status, _, _, why):
                self._tell_fact(fact, status, why)
            case worker_effects.TellNotice(remaining_s, source):
                master, worker = self.system.master, self.id
                self.send(
                    master,
                    lambda: master.post(job_events.WorkerNoticeCame(self.now_s, worker, remaining_s, source)),
                )
            case worker_effects.SendHeartbeat(status):
                controller = self.system.controller
                self.send(controller, lambda: controller.post(cluster_events.WorkerHeard(self.now_s, status)))
            case worker_effects.FlushProgress():
                pass
            case worker_effects.Leave(code, why):
                self.kill(f"left with {code}: {why}")
            case _:
                assert_never(effect)

    def kill(self, why: str) -> None:
        """The process and everything below it is gone, as when a machine is."""
        if not self.alive:
            return
        self.tell(f"gone ({why})")
        self.alive = False
        for trainer in self.trainers:
            self.system.training.end(trainer)
        if self.system.controller.alive:
            self.system.controller.ended(self.uid, why)

    def lose_host(self) -> None:
        """Its trainers die with it, by no preemption: that counts as a failure, like a script killed for its memory."""
        self.host += 1
        for trainer in self.trainers:
            self.system.training.failures += trainer.alive
            self.system.training.end(trainer)
        self.post(worker_events.HostLost(self.now_s, "killed"))

    def reconnect(self, connected: bool) -> None:
        self.connected = connected
        self.post(worker_events.BusBack(self.now_s) if connected else worker_events.BusLost(self.now_s))
        if connected:
            self.later(0.01, self.read_kept)

    def _tell_fact(self, fact: str, status: Any, why: str) -> None:
        master, controller = self.system.master, self.system.controller
        if fact == "left":
            said = job_events.WorkerSaidLeft(self.now_s, self.id, CLUSTER, why)
            self.send(master, lambda: master.post(said))
            self.send(controller, lambda: controller.post(cluster_events.WorkerSaidLeft(self.now_s, self.id, why)))
        else:
            self.send(master, lambda: master.post(job_events.WorkerSpoke(self.now_s, status)))

    def _fork(self, assignment: Assignment) -> None:
        host, generation = self.host, assignment.generation
        for rank in self.state.ranks:
            trainer = Trainer(generation, rank, assignment.world_size, self.id, exited=lambda how: None)
            trainer.exited = lambda how: self.later(0.001, lambda: self._exited(generation, how))
            self.trainers.append(trainer)

            def forked(trainer: Trainer = trainer) -> None:
                if host == self.host and trainer.alive:
                    self.system.training.start(trainer)
                    self.post(worker_events.TrainerForked(self.now_s, generation, trainer.rank, 1))

            self.later(0.08, forked)

    def _exited(self, generation: Generation, how: TrainerExit) -> None:
        self.post(worker_events.TrainerExited(self.now_s, generation, how))

    def _stop(self, generation: Generation, grace_s: float) -> None:
        stubborn = self.system.clockwork.happens(0.1, "trainer ignored SIGTERM")

        def ended() -> None:
            for trainer in self.trainers:
                if trainer.generation <= generation:
                    self.system.training.end(trainer)
            self.post(worker_events.TrainersStopped(self.now_s, generation))

        self.later(grace_s if stubborn else 0.01, ended)
