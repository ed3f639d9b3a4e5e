"""The production cores, each with a simulated shell: same decisions, virtual hands."""

from collections.abc import Callable
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
from controlplane.job import events as job_events
from messages.ids import ClusterName, Epoch, Generation, WorkerId
from messages.workers import TrainerExit
from messages.worlds import Assignment, EndStalled, Halt, Invite, JobCommand, Locate, Release
from tests.simulation.clockwork import Broken
from tests.simulation.training import Trainer

if TYPE_CHECKING:
    from tests.simulation.system import System

CLUSTER = ClusterName("local")
BARREN = ClusterName("barren")
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


class ControllerActor(Actor):
    def __init__(self, system: "System", cluster: ClusterName, incarnation: str, known: Known | None) -> None:
        super().__init__(system, f"controller {cluster} {incarnation}")
        self.cluster = cluster
        self.host = system.host_of(cluster)
        self.state: ClusterState = new_cluster(
            cluster, incarnation, "", self.now_s, known, synced=not self.host.is_watched
        )
        self.tell("starts" if known is None else f"adopts {len(known.places)} places")
        self.host.attach(self, known.places if known is not None else ())
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
        if isinstance(event, cluster_events.KeepAsked) and (event.epoch or 0) < before.leadership.epoch:
            self.system.clockwork.made["command of an old epoch"] += 1
            if self.state.wanted != before.wanted:
                raise Broken(f"{self.name} obeyed epoch {event.epoch} after epoch {before.leadership.epoch} had spoken")
        for effect in decision.effects:
            self.perform(effect)
        self.wake_at(decision.wake_at_s, self.tick)

    def perform(self, effect: cluster_effects.ClusterEffect) -> None:
        match effect:
            case cluster_effects.StartPlace(uid, job, template):
                self.host.start(uid, job, template)
            case cluster_effects.EndPlace(uid, grace_s, why):
                self.host.end(uid, grace_s, why)
            case cluster_effects.TellNotice(noticed, _, remaining_s, source):
                self.system.tell_masters(
                    self, lambda: job_events.WorkerNoticeCame(self.now_s, noticed, remaining_s, source)
                )
            case cluster_effects.SendTopology(heartbeat):
                self.system.tell_masters(self, lambda: job_events.ClusterReported(self.now_s, heartbeat))
            case cluster_effects.SaveKnown(known):
                self._save(known)
            case _:
                assert_never(effect)

    def watch_leader(self) -> None:
        """As a watch on the leader's key tells: late, but not never."""

        def tell() -> None:
            if self.connected:
                self.post(cluster_events.LeaderSeen(self.now_s, self.system.key.newest))

        self.later(self.system.clockwork.chance.uniform(0.001, 2.0), tell)

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
        self.system.known[self.cluster] = known
        self.later(0.0003, lambda: self.post(cluster_events.KnownSaved(self.now_s)))


class WorkerActor(Actor):
    def __init__(self, system: "System", uid: str, identity: WorkerIdentity) -> None:
        super().__init__(system, f"worker {identity.worker}")
        self.uid = uid
        self.exited: Callable[[str], None] = lambda why: None
        """Told why, when the process is gone."""
        self.pid = identity.pid
        self.state = new_worker(identity, self.now_s)
        self.trainers: list[Trainer] = []
        self.host = 0
        self.later(0.05, self.tick)
        self.later(0.05, self.read_kept)

    @property
    def id(self) -> WorkerId:
        return self.state.identity.worker

    @property
    def controller(self) -> ControllerActor:
        """Of its cluster, as it is now."""
        return self.system.controllers[self.state.identity.cluster]

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

    def hear(self, message: JobCommand, epoch: Epoch) -> None:
        before = self.state
        self._hear(message, epoch)
        if epoch < before.contact.epoch:
            self.system.clockwork.made["command of an old epoch"] += 1
            after = self.state
            if (before.fence, before.pending, before.leaving) != (after.fence, after.pending, after.leaving):
                raise Broken(
                    f"{self.name} obeyed {message} of epoch {epoch} after epoch {before.contact.epoch} had spoken"
                )

    def _hear(self, message: JobCommand, epoch: Epoch) -> None:
        match message:
            case Assignment():
                self.post(worker_events.AssignmentHeard(self.now_s, message, epoch))
            case Halt():
                self.post(worker_events.HaltHeard(self.now_s, message, epoch))
            case Invite():
                self.post(worker_events.InviteHeard(self.now_s, message, epoch))
            case Release():
                self.post(worker_events.ReleaseHeard(self.now_s, message, epoch))
            case Locate() | EndStalled():
                raise Broken(f"{self.name} has no trainer that lives on, but gets {message}")

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
                self.system.tell_masters(
                    self, lambda: job_events.WorkerNoticeCame(self.now_s, self.id, remaining_s, source)
                )
            case worker_effects.SendHeartbeat(status):
                controller = self.controller
                self.send(controller, lambda: controller.post(cluster_events.WorkerHeard(self.now_s, status)))
            case worker_effects.FlushProgress() | worker_effects.TellTrainer() | worker_effects.LookAtTrainers():
                pass
            case worker_effects.AbortTrainer():
                raise Broken(f"{self.name} has no trainer that lives on, but aborts one")
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
        self.exited(why)

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
        controller = self.controller
        if fact == "left":
            cluster = self.state.identity.cluster
            self.system.tell_masters(self, lambda: job_events.WorkerSaidLeft(self.now_s, self.id, cluster, why))
            self.send(controller, lambda: controller.post(cluster_events.WorkerSaidLeft(self.now_s, self.id, why)))
        else:
            self.system.tell_masters(self, lambda: job_events.WorkerSpoke(self.now_s, status))

    def _fork(self, assignment: Assignment) -> None:
        host, generation = self.host, assignment.generation
        for rank in self.state.ranks:
            trainer = Trainer(generation, rank, assignment.world_size, self.id, exited=lambda how: None)
            trainer.exited = lambda how: self.later(0.001, lambda: self._exited(generation, how))
            trainer.saved = lambda: self.later(0.001, lambda: self._saved(generation))
            self.trainers.append(trainer)

            def forked(trainer: Trainer = trainer) -> None:
                if host == self.host and trainer.alive:
                    self.system.training.start(trainer)
                    self.post(worker_events.TrainerForked(self.now_s, generation, trainer.rank, 1))

            self.later(0.08, forked)

    def _saved(self, generation: Generation) -> None:
        self.post(worker_events.CheckpointReported(self.now_s, generation, self.now_s))

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
