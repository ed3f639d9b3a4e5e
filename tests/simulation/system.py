"""One job on one cluster, all roles in one thread, by seed: first faults, then they stop and the world must heal."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agents.cluster.state import Known
from agents.worker.events import NoticeCame
from agents.worker.state import WorkerIdentity
from controlplane.job.state import Job, Phase, Record
from messages.ids import Epoch, Generation, JobName, WorkerId
from messages.jobs import Failures, JobSpec, Launch, Timeouts, Workers
from tests.simulation.actors import CLUSTER, Actor, ControllerActor, MasterActor, WorkerActor
from tests.simulation.clockwork import Broken, Clockwork
from tests.simulation.training import STEP_S, Training

HEAL_S = 90.0
"""When faults have stopped the job must end within this plus the time of its steps."""


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    broken: str | None
    faults: Counter[str]
    story: list[str]
    steps_taken: int
    generations: int


class System:
    def __init__(self, seed: int) -> None:
        self.clockwork = Clockwork(seed)
        chance = self.clockwork.chance
        self.spec = JobSpec(
            name="simulated",
            launch=Launch(script="train.py"),
            workers=Workers(max=chance.choice((2, 3, 4, 6)), min=2, ranks=chance.choice((1, 1, 2))),
            replica=chance.choice((1, 1, 2)),
            failures=Failures(max=1000, backoff_s=0.5, backoff_max_s=2.0),
            timeouts=Timeouts(ready_s=8.0, stop_grace_s=1.0),
        )
        self.stored: Record | None = None
        self.known: Known | None = None
        self.workers: dict[str, WorkerActor] = {}
        self.training = Training(self.clockwork, chance.choice((20, 40, 60)), self._store_serves)
        self._pids = 100
        self._controllers = 0
        self.claim = Epoch(1)
        self.controller = self._new_controller()
        self.master = MasterActor(self, self.spec, self.claim, None)

    def run(self) -> Outcome:
        broken = None
        try:
            self._plan_faults()
            self._run_to_the_end()
        except Broken as error:
            broken = str(error)
            self.clockwork.tell(f"BROKEN: {broken}")
        generations = self.master.job.record.generation
        return Outcome(
            self.clockwork.seed,
            broken,
            self.clockwork.made,
            self.clockwork.story,
            self.training.steps_taken,
            generations,
        )

    def start_worker(self, uid: str, job: JobName, slots: int) -> WorkerActor:
        self._pids += 1
        worker = WorkerId(f"{uid}-{self._pids:04x}")
        identity = WorkerIdentity(worker=worker, cluster=CLUSTER, job=job, slots=slots, pid=self._pids)
        if uid in self.workers:
            raise Broken(f"place {uid} was started twice")
        self.workers[uid] = WorkerActor(self, uid, identity)
        return self.workers[uid]

    def check_claim(self, job: Job) -> None:
        """What the master claims at a job's end, held against what the trainers did."""
        record = job.record
        if record.phase is Phase.FAILED:
            raise Broken(f"the job failed though its budget was never used up: {record.why}")
        if record.failures > self.training.failures:
            raise Broken(f"{record.failures} failures counted, the script failed {self.training.failures} times")
        if record.phase is Phase.SUCCEEDED:
            last = self.training.worlds[record.assignment.generation] if record.assignment is not None else {}
            if not last or not all(trainer.clean for trainer in last.values()):
                raise Broken("the job is called succeeded, but not all ranks of its last world exited with 0")
            if self.training.checkpoint < self.training.steps:
                raise Broken("the job is called succeeded, but its steps were not done")

    def _run_to_the_end(self) -> None:
        limit_s = self.clockwork.faults.until_s + HEAL_S + self.training.steps * STEP_S
        if not self.clockwork.run_until(lambda: self.master.job.record.phase.ended and self._nothing_left(), limit_s):
            job = self.master.job
            left = [worker.id for worker in self.workers.values() if worker.alive]
            raise Broken(
                f"not healed {HEAL_S:g} s after the faults stopped: {job.record.phase}, {job.why}; "
                f"step {self.training.checkpoint} of {self.training.steps}; workers left: {left}"
            )

    def _nothing_left(self) -> bool:
        return not any(worker.alive for worker in self.workers.values()) and not self.training.alive

    def _store_serves(self, generation: Generation) -> bool:
        return self.master.alive and generation in self.master.stores

    # Faults

    def _plan_faults(self) -> None:
        clockwork = self.clockwork
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("worker killed", self._kill_worker),
            ("worker killed", self._kill_worker),
            ("worker noticed, then killed", self._notice_worker),
            ("several workers killed at once", self._kill_several),
            ("master crashed", self._crash_master),
            ("controller crashed", self._crash_controller),
            ("host killed", self._kill_host),
            ("script failed", self._fail_script),
            ("worker cut off", lambda: self._cut_off(self._some_worker())),
            ("master cut off", lambda: self._cut_off(self.master)),
            ("controller cut off", lambda: self._cut_off(self.controller)),
            ("bus away", self._bus_away),
            ("store killed", lambda: self.master.lose_store()),
        ]
        for _ in range(clockwork.chance.randint(2, 14)):
            name, make = clockwork.chance.choice(kinds)
            at_s = clockwork.chance.uniform(0.5, clockwork.faults.until_s - clockwork.now_s)
            clockwork.after(at_s, partial(self._make, name, make))

    def _make(self, name: str, make: Callable[[], None]) -> None:
        if self.master.job.record.phase.ended:
            return
        self.clockwork.made[name] += 1
        self.clockwork.tell(f"FAULT: {name}")
        make()

    def _some_worker(self) -> WorkerActor | None:
        alive = [worker for worker in self.workers.values() if worker.alive]
        return self.clockwork.chance.choice(alive) if alive else None

    def _kill_worker(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            worker.kill("SIGKILL")

    def _kill_several(self) -> None:
        for _ in range(self.clockwork.chance.randint(2, 4)):
            self._kill_worker()

    def _notice_worker(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            worker.post(NoticeCame(self.clockwork.now_s, 15.0, "signal"))
            worker.later(15.0, lambda: worker.kill("preempted"))

    def _kill_host(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            worker.lose_host()

    def _fail_script(self) -> None:
        alive = self.training.alive
        if alive and self.training.checkpoint < self.training.steps:
            self.training.fail(self.clockwork.chance.choice(alive))

    def _crash_master(self) -> None:
        if not self.master.alive:
            return
        self.master.alive = False
        epoch = Epoch(self.master.epoch + 1)
        self.clockwork.after(self.clockwork.chance.uniform(0.1, 8.0), lambda: self._restart_master(epoch))

    def _restart_master(self, epoch: Epoch) -> None:
        self.claim = epoch
        self.master = MasterActor(self, self.spec, epoch, self.stored)
        self.controller.watch_leader()

    def _crash_controller(self) -> None:
        if self.controller.alive:
            self.controller.alive = False
            self.clockwork.after(self.clockwork.chance.uniform(0.1, 8.0), self._restart_controller)

    def _restart_controller(self) -> None:
        self.controller = self._new_controller()

    def _new_controller(self) -> ControllerActor:
        self._controllers += 1
        return ControllerActor(self, f"{self._controllers:06x}", self.known)

    def _cut_off(self, actor: Actor | None) -> None:
        if isinstance(actor, MasterActor | ControllerActor | WorkerActor) and actor.alive and actor.connected:
            actor.reconnect(False)
            actor.later(self.clockwork.chance.uniform(0.5, 12.0), lambda: actor.reconnect(True))

    def _bus_away(self) -> None:
        for actor in (self.master, self.controller, *self.workers.values()):
            self._cut_off(actor)


def simulate(seed: int) -> Outcome:
    return System(seed).run()
