"""The system for a script that uses the SDK: faults come in every phase of a change."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from msgspec import structs

from agents.worker import effects as worker_effects
from agents.worker import events as worker_events
from agents.worker.state import WorkerIdentity
from agents.worker.translation import order_of, status_of
from controlplane.job import events as job_events
from controlplane.job.state import Job
from messages.ids import Epoch, Generation
from messages.records import Phase, Record
from messages.workers import TrainerExit, WrittenCheckpoint
from messages.worlds import EndStalled, Invite, JobCommand, Locate
from tests.simulation.actors import WorkerActor
from tests.simulation.clockwork import Broken
from tests.simulation.collectives import COLLECTIVE_S, Group
from tests.simulation.live_trainers import LiveTrainer, LiveTraining
from tests.simulation.settings import Setting
from tests.simulation.system import System
from tradewind.protocol.trainer import Status

LOOK_S = 0.004
LOOK_FOR_S = 15.0
STALL_S = 6.0
STEP_S = 0.1
"""Reported duration of a step in seconds."""
WRITES_STACKS_S = 0.5


class LiveWorker(WorkerActor):
    def __init__(self, system: System, uid: str, identity: WorkerIdentity) -> None:
        super().__init__(system, uid, identity)
        self.live: dict[tuple[Generation, int], LiveTrainer] = {}
        self.training = cast(LiveTraining, system.training)

    def perform(self, effect: worker_effects.WorkerEffect) -> None:
        match effect:
            case worker_effects.ForkTrainers():
                for trainer in self.state.trainers:
                    if trainer.pid is None and not self._lives(trainer.birth):
                        self._bear(trainer.birth, trainer.local_rank)
            case worker_effects.StopTrainers(generation, grace_s):
                self._stop_live(generation, grace_s)
            case worker_effects.TellTrainer(generation, rank, word):
                reported = self.live.get((generation, rank))
                if reported is not None:
                    self.later(0.0003, partial(reported.obey, order_of(word, "127.0.0.1")))
            case worker_effects.LookAtTrainers():
                running = frozenset(t.birth for t in self.live.values() if t.alive and not t.stopped)
                self.later(0.0003, lambda: self.post(worker_events.TrainersSeen(self.now_s, running)))
            case worker_effects.AbortTrainer(generation, rank, why):
                noticed = self.live.get((generation, rank))
                if noticed is not None:
                    self.later(WRITES_STACKS_S, partial(self.training.abort, noticed, why, STALL_S))
            case _:
                super().perform(effect)

    def _hear(self, message: JobCommand, epoch: Epoch) -> None:
        match message:
            case Invite():
                self.post(worker_events.InviteHeard(self.now_s, message, epoch))
            case Locate():
                self.post(worker_events.LocateHeard(self.now_s, message, epoch))
            case EndStalled():
                self.post(worker_events.EndStalledHeard(self.now_s, message, epoch))
            case _:
                super()._hear(message, epoch)

    def kill(self, why: str) -> None:
        was_alive = self.alive
        super().kill(why)
        if was_alive:
            for trainer in self.live.values():
                self.training.end(trainer)

    def lose_host(self) -> None:
        for trainer in self.live.values():
            self.training.failures += trainer.alive
            self.training.end(trainer)
        super().lose_host()

    def _lives(self, birth: tuple[Generation, Any]) -> bool:
        """True if the trainer of that birth lives; after a lost host, the next trainer may have the same birth."""
        known = self.live.get(birth)
        return known is not None and known.alive

    def _bear(self, birth: tuple[Generation, Any], local_rank: int) -> None:
        host = self.host

        def tell(status: Status) -> None:
            reported = structs.replace(status_of(status, None), local_rank=local_rank, step_s=STEP_S)
            self.later(0.0003, lambda: self.post(worker_events.TrainerSaid(self.now_s, *birth, reported)))

        def exited(how: TrainerExit) -> None:
            self.later(0.001, lambda: self.post(worker_events.TrainerExited(self.now_s, birth[0], how)))

        trainer = LiveTrainer(self.training, birth, local_rank, self.id, tell, exited)
        self.live[birth] = trainer
        self.training.trainers.append(trainer)

        def forked() -> None:
            if host == self.host and trainer.alive:
                self.post(worker_events.TrainerForked(self.now_s, *birth, 1))
                self.later(self.system.clockwork.chance.uniform(0.05, 0.8), attach)

        def attach() -> None:
            if trainer.alive:
                self.post(worker_events.TrainerAttached(self.now_s, *birth))
                trainer.start()

        self.later(0.08, forked)

    def _stop_live(self, generation: Generation, grace_s: float) -> None:
        stubborn = self.system.clockwork.happens(0.1, "trainer ignored SIGTERM")

        def ended() -> None:
            for birth, trainer in self.live.items():
                if birth[0] <= generation:
                    if trainer.alive:
                        written = WrittenCheckpoint(0, "/checkpoints", self.now_s)
                        self.post(worker_events.CheckpointWritten(self.now_s, written))
                    self.training.end(trainer)
            self.post(worker_events.TrainersStopped(self.now_s, generation))

        self.later(grace_s if stubborn else 0.01, ended)


class LiveSystem(System):
    worker_kind = LiveWorker

    def __init__(self, seed: int, setting: Setting | None = None) -> None:
        super().__init__(seed, setting)
        steps = self.clockwork.chance.choice((40, 100, 200))
        self.spec = structs.replace(self.spec, timeouts=structs.replace(self.spec.timeouts, stall_s=STALL_S))
        self.live_training = LiveTraining(self.clockwork, steps, self._store_is_at)
        self.training: Any = self.live_training
        self._outdated = 0

    def _store_is_at(self, port: int) -> bool:
        return any(term.alive and 29400 + store % 100 == port for term in self.terms for store in term.stores)

    def _check_claim(self, record: Record) -> None:
        if record.phase is Phase.FAILED:
            raise Broken(f"the job failed though its budget was never used up: {record.why}")
        if record.failures > self.training.failures:
            raise Broken(f"{record.failures} failures counted, the script failed {self.training.failures} times")
        if record.phase is Phase.SUCCEEDED and not self.training.over:
            raise Broken("the job is called succeeded, but its steps were not done")
        if record.phase is Phase.RESHAPING and record.why.startswith("all ranks wait"):
            self._check_in_vain(record)
        if record.phase is Phase.RUNNING and len(record.outdated) < self._outdated:
            self.live_training.seen["workers replaced by a reload"] += 1
        self._outdated = len(record.outdated)

    def _check_in_vain(self, record: Record) -> None:
        """Checks that a world does not change because a rank is slow."""
        generation = record.assignment.generation if record.assignment is not None else 0
        group = self.live_training.groups.get(generation)
        alive = [t for t in self.live_training.alive if t.generation == generation and t.is_busy]
        slow = alive if group is not None and not group.is_broken else []
        if any(self.clockwork.now_s - (trainer.busy_since_s or 0.0) > 0.5 for trainer in slow):
            raise Broken(f"a world was halted for a rank that was slow: {record.why}")

    # Faults

    def _plan_faults(self) -> None:
        super()._plan_faults()
        clockwork = self.clockwork
        kinds: list[tuple[str, Callable[[], bool], Callable[[], None]]] = [
            ("worker killed while a world is prepared", self._is_preparing, self._kill_worker),
            ("joiner killed while its world is prepared", self._is_joining, self._kill_joining_worker),
            (
                "leader crashed while a world is prepared",
                self._is_preparing,
                lambda: self.crash_master(self._leader()),
            ),
            ("store killed while a world is prepared", self._is_preparing, self._kill_store),
            ("worker killed in a repair", self._is_parking, self._kill_worker),
            ("worker killed when a repair was decided", self._is_repairing, self._kill_worker),
            ("leader crashed in a repair", self._is_parking, lambda: self.crash_master(self._leader())),
            (
                "leader crashed when a repair was decided",
                self._is_repairing,
                lambda: self.crash_master(self._leader()),
            ),
            ("script failed in a repair", self._is_parking, self._fail_script),
            ("worker killed while it catches up", self._is_catching_up, self._kill_catching_up),
        ]
        for _ in range(clockwork.chance.randint(1, 5)):
            name, when, make = clockwork.chance.choice(kinds)
            at_s = clockwork.chance.uniform(3, clockwork.faults.until_s - clockwork.now_s)
            clockwork.after(at_s, partial(self._watch, name, when, make, LOOK_FOR_S))
        others: list[tuple[str, Callable[[], None]]] = [
            ("trainer silent", self._silence),
            ("trainer slow", self._slow_down),
            ("trainer in its loop body for long", self._occupy),
            ("trainer in its loop body for long", self._occupy),
            ("trainer stalled", self._stall),
            ("notice with little time", self._notice_late),
            ("scaled", self._scale),
            ("scaled", self._scale),
            ("reloaded", self._reload),
            ("worker killed at the switch", lambda: self._at_switch("worker killed at the switch", self._kill_worker)),
            ("worker killed at the switch", lambda: self._at_switch("worker killed at the switch", self._kill_worker)),
            (
                "leader crashed at the switch",
                lambda: self._at_switch("leader crashed at the switch", lambda: self.crash_master(self._leader())),
            ),
        ]
        for _ in range(clockwork.chance.randint(1, 5)):
            name, change = clockwork.chance.choice(others)
            at_s = clockwork.chance.uniform(3, clockwork.faults.until_s - clockwork.now_s)
            clockwork.after(at_s, change if name.endswith("switch") else partial(self._make, name, change))
        if clockwork.chance.random() < 0.4:
            clockwork.after(clockwork.chance.uniform(3, 10), self._recall_at_switch)
        if clockwork.chance.random() < 0.2:
            clockwork.after(clockwork.chance.uniform(3, 10), partial(self._make, "reloaded", self._reload))

    def _watch(self, name: str, when: Callable[[], bool], make: Callable[[], None], left_s: float) -> None:
        if left_s <= 0 or not self.clockwork.unkind:
            return
        if when():
            self._make(name, make)
        else:
            self.clockwork.after(LOOK_S, partial(self._watch, name, when, make, left_s - LOOK_S))

    def _at_switch(self, name: str, make: Callable[[], None]) -> None:
        def fault(group: Group) -> None:
            if self.clockwork.unkind:
                self.clockwork.after(COLLECTIVE_S / 2, partial(self._make, name, make))

        self.live_training.at_switch = fault

    def _recall_at_switch(self) -> None:
        """Delays the result of a rank's last all-reduce, perhaps until it is assigned to the world after the next."""

        def fault(group: Group) -> None:
            leaving = [t for t in self.live_training.alive if t in group.members.values() and t.is_leaving]
            if not leaving or not self.clockwork.unkind:
                self.live_training.at_switch = fault
                return
            slow = self.clockwork.chance.choice(leaving)
            slow_s = self.clockwork.chance.choice((0.7, 1.2, 1.5))
            name = "leaving trainer slow at the switch and wanted again"
            self.clockwork.after(COLLECTIVE_S / 2, partial(self._make, name, lambda: self._recall(slow, slow_s)))

        self._scale_to(self.spec.workers.min)
        self.live_training.at_switch = fault

    def _recall(self, trainer: LiveTrainer, slow_s: float) -> None:
        self.live_training.slow_down(trainer, slow_s)
        self._scale_to(self.spec.workers.max)

    @property
    def _job(self) -> Job | None:
        term = self._leader().term
        return term.job if term is not None and term.alive else None

    def _is_preparing(self) -> bool:
        return self._job is not None and self._job.record.prepared is not None

    def _is_joining(self) -> bool:
        return bool(self._joining())

    def _joining(self) -> list[WorkerActor]:
        job = self._job
        if job is None or job.record.prepared is None or job.record.assignment is None:
            return []
        old = {member.worker for member in job.record.assignment.members}
        new = {member.worker for member in job.record.prepared.members} - old
        return [worker for worker in self.workers.values() if worker.alive and worker.id in new]

    def _is_parking(self) -> bool:
        return self._job is not None and self._job.record.phase is Phase.RESHAPING

    def _is_repairing(self) -> bool:
        record = self._job.record if self._job is not None else None
        if record is None or record.phase is not Phase.FORMING or record.assignment is None:
            return False
        return record.assignment.live is not None and record.assignment.generation == record.generation

    def _is_catching_up(self) -> bool:
        return bool(self._catching_up())

    def _catching_up(self) -> list[WorkerActor]:
        names = {t.worker for t in self.live_training.alive if t.is_joining}
        return [worker for worker in self.workers.values() if worker.alive and worker.id in names]

    def _kill_joining_worker(self) -> None:
        self.clockwork.chance.choice(self._joining()).kill("SIGKILL")

    def _kill_catching_up(self) -> None:
        self.clockwork.chance.choice(self._catching_up()).kill("SIGKILL")

    def _fail_script(self) -> None:
        alive = [trainer for trainer in self.live_training.alive if trainer.state.certificate is None]
        if alive and not self.live_training.over:
            self.live_training.fail(self.clockwork.chance.choice(alive))

    def _silence(self) -> None:
        trains = [trainer for trainer in self.live_training.alive if trainer.trains]
        if trains:
            chance = self.clockwork.chance
            chance.choice(trains).silence(chance.choice((0.2, 0.7, 2.0, 1000.0)), stopped=True)

    def _slow_down(self) -> None:
        """Takes the core from a trainer for a while, which its agent can distinguish from a stopped trainer."""
        trains = [trainer for trainer in self.live_training.alive if trainer.trains]
        if trains:
            chance = self.clockwork.chance
            self.live_training.slow_down(chance.choice(trains), chance.choice((0.7, 1.2, 1.5)))

    def _occupy(self) -> None:
        """Keeps a trainer in its loop body for longer than its peers wait."""
        trains = [trainer for trainer in self.live_training.alive if trainer.trains]
        if trains:
            chance = self.clockwork.chance
            chance.choice(trains).occupy(chance.choice((0.7, 1.5, 3.0, 4.5)))

    def _stall(self) -> None:
        """Keeps a trainer in its loop body for ever, one at a time: a rank is missed only while another waits."""
        alive = self.live_training.alive
        trains = [trainer for trainer in alive if trainer.trains and not trainer.is_busy]
        if trains and not any(trainer.is_busy for trainer in alive):
            self.clockwork.chance.choice(trains).occupy(1000.0)

    def _notice_late(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            left_s = self.clockwork.chance.choice((0.1, 0.6, 1.2, 2.0))
            worker.post(worker_events.NoticeCame(self.clockwork.now_s, left_s, "signal"))
            worker.later(left_s, lambda: worker.kill("preempted"))

    def _scale(self) -> None:
        self._scale_to(self.clockwork.chance.randint(self.spec.workers.min, self.spec.workers.max))

    def _scale_to(self, wanted: int) -> None:
        term = self._leader().term
        if term is not None:
            term.hear(lambda: job_events.ScaleAsked(self.clockwork.now_s, wanted))

    def _reload(self) -> None:
        term = self._leader().term
        if term is not None:
            term.hear(lambda: job_events.ReloadAsked(self.clockwork.now_s))
