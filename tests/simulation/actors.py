"""The production cores, each with a simulated shell: same decisions, virtual hands."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from agents.cluster import decide as cluster_core
from agents.cluster import effects as cluster_effects
from agents.cluster import events as cluster_events
from agents.cluster import invariants as cluster_invariants
from agents.cluster import reports as cluster_reports
from agents.cluster.state import ClusterState, Known, new_cluster
from agents.worker import decide as worker_core
from agents.worker import effects as worker_effects
from agents.worker import events as worker_events
from agents.worker import invariants as worker_invariants
from agents.worker.state import WorkerIdentity, new_worker
from agents.worker.stored import read_stored, read_world
from agents.worker.worlds import WorldCache
from controlplane.job import events as job_events
from controlplane.jobs.worlds import Sent
from messages.clusters import ClusterHeartbeat
from messages.compact_worlds import StoredAssignment, StoredInvite, WorldReference
from messages.ids import NO_EPOCH, ClusterName, Epoch, Generation, WorkerId
from messages.workers import TrainerExit
from messages.world_deltas import AssignmentDelta
from messages.worlds import Assignment, EndStalled, Halt, Invite, JobCommand, Locate, Release
from tests.simulation.clockwork import Broken
from tests.simulation.stored import at_once
from tests.simulation.training import Trainer

if TYPE_CHECKING:
    from tests.simulation.system import System

CLUSTER = ClusterName("local")
PART_BYTES = 1500
"""Most bytes of a report in one message: most reports of more than one worker come in parts."""
BARREN = ClusterName("barren")
FETCH_TRIES = 8
MISSED = 0.15
FETCH_S = (0.05, 0.05, 5.0)
"""Fetches take at most one of these."""
SOME_TIME_S = 1e-5
"""No process wakes twice at the same moment."""


@dataclass(frozen=True, slots=True)
class StoppedClock:
    """A clock for components that only record the time."""

    now_s: float

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


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
        """Runs something later, unless the actor is dead by then."""
        self.system.clockwork.after(delay_s, lambda: what() if self.alive else None)

    def send(self, receiver: "Actor", deliver: Callable[[], None]) -> None:
        """Sends over the bus: the sender must be connected now, the receiver at arrival."""
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
        self.truth: dict[int, ClusterHeartbeat] = {}
        """The whole state at each report."""
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
                self.truth[heartbeat.seq] = cluster_reports.whole_state(self.state, self.now_s)
                parts = cluster_reports.split(heartbeat, PART_BYTES)
                self.system.clockwork.made["report in parts"] += len(parts) > 1
                for part in parts:
                    self.system.report_to_masters(self, part)
            case cluster_effects.SaveKnown(known):
                self._save(known)
            case _:
                assert_never(effect)

    def watch_leader(self) -> None:
        """Learns the leader from a watch on its key, with a delay."""

        def tell() -> None:
            if self.connected:
                self.post(cluster_events.LeaderSeen(self.now_s, self.system.key.newest))

        self.later(self.system.clockwork.chance.uniform(0.001, 2.0), tell)

    def report_whole(self) -> None:
        self.system.clockwork.made["whole state asked for"] += 1
        self.post(cluster_events.WholeAsked(self.now_s))

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
        """Called with the reason when the process is gone."""
        self.pid = identity.pid
        self.state = new_worker(identity, self.now_s)
        self.trainers: list[Trainer] = []
        self.worlds = WorldCache()
        self._missed: dict[Generation, bool] = {}
        self.host = 0
        self.later(0.05, self.tick)
        self.later(0.05, self.read_kept)

    @property
    def id(self) -> WorkerId:
        return self.state.identity.worker

    @property
    def controller(self) -> ControllerActor:
        """The current controller of its cluster."""
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

    def hear(self, message: Sent, epoch: Epoch) -> None:
        """Receives a message over the bus: a large world comes as a delta, or must be fetched."""
        seen = self.system.training.seen
        if isinstance(message, AssignmentDelta | StoredAssignment) and self._misses(message.generation):
            return
        match message:
            case Assignment() | AssignmentDelta() | StoredAssignment():
                assignment = self.worlds.hear(message)
                seen["worlds by delta"] += isinstance(message, AssignmentDelta) and assignment is not None
                if assignment is not None:
                    self.obey(assignment, epoch)
                elif not isinstance(message, Assignment):
                    self._fetch(message.world, lambda world: self.obey(world, epoch))
            case StoredInvite():
                seen["invites by reference"] += 1
                job, why, terms = message.job, message.why, message.terms
                workers = message.workers
                if self.id in workers:
                    self._fetch(message.world, lambda world: self.obey(Invite(job, workers, world, why, terms), epoch))
            case _:
                self.obey(message, epoch)

    def _misses(self, generation: Generation) -> bool:
        """True if it misses this world, so that the next delta starts from a world that it does not have."""
        clockwork = self.system.clockwork
        if generation not in self._missed:
            self._missed[generation] = clockwork.happens(MISSED, "world never heard by a worker")
        return self._missed[generation] and clockwork.unkind

    def _fetch(self, world: WorldReference, then: Callable[[Assignment], None], tries: int = FETCH_TRIES) -> None:
        def read() -> None:
            if not self.connected:
                if tries > 1:
                    self._fetch(world, then, tries - 1)
                return
            found = at_once(read_stored(self.system.bucket, self.state.identity.job, world, self.worlds))
            seen, stored = self.system.training.seen, self.system.stored
            seen["worlds fetched"] += found is not None
            seen["fetches that met a newer world"] += stored is not None and stored.generation > world.generation
            if found is not None:
                then(found)
            else:
                self.read_kept()

        chance = self.system.clockwork.chance
        self.later(chance.uniform(0.001, chance.choice(FETCH_S)), read)

    def obey(self, message: JobCommand, epoch: Epoch) -> None:
        before = self.state
        if isinstance(message, Assignment) and message not in self.system.decided.get(message.generation, ()):
            raise Broken(f"{self.name} hears a world of generation {message.generation} that was never stored")
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
        """Reads the last world from KV, after a late start or an absence."""
        if not self.connected:
            return
        job = self.state.identity.job
        for heard in at_once(read_world(self.system.bucket, job, StoppedClock(self.now_s), self.worlds)):
            reported = heard.assignment if isinstance(heard, worker_events.AssignmentHeard) else heard.halt
            self.obey(reported, heard.epoch or NO_EPOCH)

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
            case worker_effects.ReadStoredWorld():
                self.later(0.01, self.read_kept)
            case worker_effects.AbortTrainer():
                raise Broken(f"{self.name} has no trainer that lives on, but aborts one")
            case worker_effects.Leave(code, why):
                self.kill(f"left with {code}: {why}")
            case _:
                assert_never(effect)

    def kill(self, why: str) -> None:
        """Ends the process and everything below it, like the loss of a machine."""
        if not self.alive:
            return
        self.tell(f"gone ({why})")
        self.alive = False
        for trainer in self.trainers:
            self.system.training.end(trainer)
        self.exited(why)

    def lose_host(self) -> None:
        """Ends the host and its trainers without a preemption, which counts as a failure, like an OOM kill."""
        self.host += 1
        for trainer in self.trainers:
            self.system.training.failures += trainer.alive
            self.system.training.end(trainer)
        self.post(worker_events.HostLost(self.now_s, "killed"))

    def reconnect(self, connected: bool) -> None:
        self.connected = connected
        self.post(worker_events.BusBack(self.now_s) if connected else worker_events.BusLost(self.now_s))

    def _tell_fact(self, fact: str, status: Any, why: str) -> None:
        controller = self.controller
        if fact == "left":
            self.system.tell_masters(self, lambda: job_events.WorkerSaidLeft(self.now_s, self.id, why))
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
