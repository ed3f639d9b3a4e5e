"""One job on one cluster, all roles in one thread, by seed: first with faults, then the world must recover."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agents.cluster.state import Known
from agents.worker.events import NoticeCame
from agents.worker.state import WorkerIdentity
from controlplane.budget.account import RELEASE_S
from controlplane.job.events import JobEvent
from controlplane.jobs.cluster_views import ClusterView
from controlplane.jobs.worlds import RecordLayout, WorldLimits, chunk_keys
from messages.clusters import ClusterHeartbeat
from messages.criteria import Capacity, Deadline, Objective, WhenSpent
from messages.ids import NO_GENERATION, ClusterName, Generation, JobName, WorkerId
from messages.jobs import Failures, JobSpec, Launch, Timeouts, Workers
from messages.records import Phase, Record, RecordWorlds
from messages.subjects import record_key
from messages.worlds import Assignment
from tests.cluster.builders import reported
from tests.simulation.actors import BARREN, CLUSTER, Actor, ControllerActor, WorkerActor
from tests.simulation.clockwork import Broken, Clockwork
from tests.simulation.cloud_faults import CloudFaults
from tests.simulation.forgeries import Forger
from tests.simulation.kubernetes import Kubernetes
from tests.simulation.market import Market
from tests.simulation.masters import LeaderKey, MasterProcess, Term, is_leader
from tests.simulation.money import PERIOD_S, LedgerKey
from tests.simulation.owner import Owner
from tests.simulation.processes import NoWorkers, PlaceHost, Processes
from tests.simulation.settings import Setting, Supply, setting_of
from tests.simulation.stored import SimulatedBucket
from tests.simulation.training import STEP_S, Training

DEADLINE = Deadline(hours=0.02, steps=100)
"""A deadline within the duration of a seed, so that jobs are checked again and some miss it."""
ON_DEMAND_USD = 0.9
"""Approximate on-demand price of a GPU for an hour."""
TINY = WorldLimits(message_bytes=1200, record_bytes=900, chunk_bytes=150)
"""Two members are too many for a whole message, and about four changes for a delta."""
HEAL_S = 90.0
"""Seconds after the faults, plus the time of its steps, within which the job must end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    broken: str | None
    faults: Counter[str]
    story: list[str]
    steps_taken: int
    generations: int
    terms: int
    seen: Counter[str]
    """Counts of events in the worlds of live trainers."""


class System:
    worker_kind: type[WorkerActor] = WorkerActor

    def __init__(self, seed: int, setting: Setting | None = None) -> None:
        self.setting = setting or setting_of(seed)
        self.clockwork = Clockwork(seed)
        chance = self.clockwork.chance
        most, ranks = chance.choice((2, 3, 4, 6)), chance.choice((1, 1, 2))
        allowed = tuple(size for size in (2, 4, 6) if size <= most) if seed % 4 == 3 else ()
        self.spec = JobSpec(
            name="simulated",
            launch=Launch(script="train.py"),
            workers=Workers(max=most, min=2, ranks=ranks, allowed=allowed, settle_s=(None, 0.0, 1.0)[seed % 3]),
            replica=chance.choice((1, 1, 2)),
            failures=Failures(max=1000, backoff_s=0.5, backoff_max_s=2.0),
            timeouts=Timeouts(ready_s=8.0, stop_grace_s=1.0),
            capacity=self._capacity(most * ranks),
        )
        self.stored: Record | None = None
        self.stored_revision = 0
        self.stored_layout: RecordLayout | None = None
        self.bucket = SimulatedBucket()
        self.decided: dict[Generation, list[Assignment]] = {}
        """Worlds that were ever stored."""
        self.limits = TINY if self.setting.has_tiny_limits else WorldLimits()
        self.known: dict[ClusterName, Known] = {}
        self.workers: dict[str, WorkerActor] = {}
        self.training = Training(self.clockwork, chance.choice((20, 40, 60)), self._store_serves)
        self._pids = 100
        self._controllers = 0
        self.incarnations: dict[str, ControllerActor] = {}
        """All controllers so far."""
        self._masters = 0
        self.key = LeaderKey(self)
        self.terms: list[Term] = []
        self.ledger = LedgerKey()
        self.market = Market(self.clockwork, JobName(self.spec.name), ranks) if self.setting.is_bought else None
        self.hosts: dict[ClusterName, PlaceHost] = {}
        self.controllers: dict[ClusterName, ControllerActor] = {}
        if self.market is not None:
            self._open_clusters(self.market)
        else:
            self.hosts[CLUSTER] = Processes(self)
            self.controllers[CLUSTER] = self._new_controller(CLUSTER)
            if self.setting.has_barren_cluster:
                self._add_barren()
        self.masters = [self._new_master(), self._new_master()]
        self.owner = Owner(self)
        self.clockwork.after_each = self.check

    def _capacity(self, gpus: int) -> Capacity | None:
        """The capacity section of a planned job, with a budget that runs out."""
        if self.setting.supply is not Supply.PLANNED:
            return None
        chance = self.clockwork.chance
        reserve = gpus * ON_DEMAND_USD * RELEASE_S / 3600
        total = reserve + gpus * ON_DEMAND_USD * chance.uniform(10, 40) / 3600 if self.setting.has_budget else None
        objective = chance.choice((Objective.COST, Objective.THROUGHPUT, Objective.DEADLINE))
        deadline = DEADLINE if objective is Objective.DEADLINE else None
        when_spent = WhenSpent.PAUSE if total else None
        return Capacity(objective=objective, deadline=deadline, max_usd_total=total, when_spent=when_spent)

    def _open_clusters(self, market: Market) -> None:
        clusters = {name: Kubernetes(self, name) for name in market.cloud.regions}
        market.cloud.on_region = lambda name, request, done: clusters[name].obey(request, done)
        market.cloud.open()
        self.hosts |= clusters
        self.controllers = {name: self._new_controller(name) for name in clusters}

    def run(self) -> Outcome:
        broken = None
        try:
            self._plan_faults()
            Forger(self).plan()
            self._run_to_the_end()
        except Broken as error:
            broken = str(error)
            self.clockwork.tell(f"BROKEN: {broken}")
        return Outcome(
            self.clockwork.seed,
            broken,
            self.clockwork.made,
            self.clockwork.story,
            self.training.steps_taken,
            self.stored.generation if self.stored is not None else NO_GENERATION,
            len(self.terms),
            self.training.seen,
        )

    def start_worker(self, uid: str, cluster: ClusterName, job: JobName, slots: int, node: str = "") -> WorkerActor:
        self._pids += 1
        worker = WorkerId(f"{uid}-{self._pids:04x}")
        identity = WorkerIdentity(worker=worker, cluster=cluster, job=job, slots=slots, node=node, pid=self._pids)
        if uid in self.workers:
            raise Broken(f"place {uid} was started twice")
        self.workers[uid] = self.worker_kind(self, uid, identity)
        return self.workers[uid]

    def host_of(self, cluster: ClusterName) -> PlaceHost:
        return self.hosts[cluster]

    def is_sound(self, worker: WorkerActor) -> bool:
        """True if it lives, has no notice, and its machine stays."""
        noticed = worker.state.notice is not None
        return worker.alive and not noticed and self.hosts[worker.state.identity.cluster].is_sound(worker.uid)

    def tell_masters(self, sender: Actor, make: Callable[[], JobEvent]) -> None:
        """Sends to all masters that lead, or believe that they lead."""
        for term in self.terms:
            if term.alive:
                sender.send(term, partial(term.hear, make))

    def report_to_masters(self, sender: ControllerActor, report: ClusterHeartbeat) -> None:
        for term in self.terms:
            if term.alive:
                sender.send(term, partial(term.hear_report, report))

    def check_view(self, view: ClusterView, now_s: float) -> None:
        """Checks that a master's view equals the controller's state at the time of the report."""
        sender = self.incarnations.get(view.incarnation)
        if sender is not None and reported(view.topology(now_s)) != reported(sender.truth[view.seq]):
            raise Broken(f"report {view.seq} of {sender.name} left a master with {view.topology(now_s)}")

    def tell_of_leader(self) -> None:
        for controller in self.controllers.values():
            controller.watch_leader()
        for master in self.masters:
            master.see(self.key.revision, self.key.holder)

    @property
    def leading_term(self) -> Term | None:
        return next((master.term for master in self.masters if is_leader(master) and not master.paused), None)

    def check(self) -> None:
        """Checks what must hold after every event."""
        acting = [master.name for master in self.masters if master.leads and not master.paused]
        if len(acting) > 1:
            raise Broken(f"{' and '.join(acting)} act at once")
        for master in self.masters:
            if master.leads and master.is_stuck_for_too_long:
                raise Broken(f"{master.name} leads though its main loop is stuck")
        if self.market is not None:
            self._check_bill(self.market)
        if self.stored_layout is not None:
            self._check_chunks(self.stored_layout)

    def _check_bill(self, market: Market) -> None:
        """Checks that spending exceeds the budget by at most one control period."""
        capacity, record = self.spec.capacity, self.stored
        if capacity is None or capacity.max_usd_total is None:
            return
        total = 1_000_000 * max(capacity.max_usd_total, (record and record.max_usd_total) or 0.0)
        period = market.cloud.micro_usd_per_hour() * PERIOD_S / 3600
        if market.cloud.bill_micro_usd() > total + period:
            raise Broken(f"{market.cloud.bill_micro_usd():.0f} micro-dollars were spent of {total:.0f}")

    def check_alone(self, acting: MasterProcess) -> None:
        """Checks that no master acts while another leads, even if compare-and-set would prevent most of the harm."""
        for other in self.masters:
            if other is not acting and other.alive and other.leads:
                raise Broken(f"{acting.name} writes while {other.name} leads")

    def write_record(self, record: Record, layout: RecordLayout, expected: int) -> int | None:
        """Writes the record; returns the new revision, or None if the expected one is not the last."""
        if expected != self.stored_revision:
            return None
        self._check_follows(record)
        self._check_claim(record)
        self.stored, self.stored_layout = record, layout
        self.stored_revision += 1
        self.bucket.values[record_key(JobName(self.spec.name))] = layout.value
        for world in (record.assignment, record.prepared):
            known = self.decided.setdefault(world.generation, []) if world is not None else []
            if world is not None and world not in known:
                known.append(world)
        self.training.seen["worlds stored apart"] += layout.worlds != RecordWorlds()
        return self.stored_revision

    def _check_chunks(self, layout: RecordLayout) -> None:
        lost = chunk_keys(JobName(self.spec.name), layout.worlds) - self.bucket.values.keys()
        if lost:
            raise Broken(f"the record names {', '.join(sorted(lost))}, which is not stored")

    def _check_follows(self, record: Record) -> None:
        """Checks that each record follows from the one before, across masters."""
        before = self.stored
        if before is None:
            return
        if record.generation < before.generation:
            raise Broken(f"generation {record.generation} was decided after {before.generation}")
        old, new = before.assignment, record.assignment
        if old is not None and new is not None and old.generation == new.generation and old.members != new.members:
            raise Broken(f"generation {new.generation} was given to two worlds")

    def _check_claim(self, record: Record) -> None:
        """Checks the claims at a job's end against what the trainers did."""
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
        if not self.clockwork.run_until(lambda: self._ended and self.nothing_left(), limit_s):
            left = [worker.id for worker in self.workers.values() if worker.alive]
            leading = [term for term in self.terms if term.alive]
            reported = [
                f"{term.name}: {term.job.record.phase}, {term.job.why}" for term in leading if term.job is not None
            ]
            raise Broken(
                f"not healed {HEAL_S:g} s after the faults stopped: {'; '.join(reported) or 'nobody leads'}; "
                f"step {self.training.checkpoint} of {self.training.steps}; workers left: {left}"
            )

    @property
    def _ended(self) -> bool:
        return self.stored is not None and self.stored.phase.ended

    def nothing_left(self) -> bool:
        return self.nothing_runs() and not (self.market is not None and self.market.cloud.pools)

    def nothing_runs(self) -> bool:
        """True if there are no workers and no machines; empty pools cost nothing."""
        pods = [pod for host in self.hosts.values() if isinstance(host, Kubernetes) for pod in host.pods]
        machines = self.market.cloud.machines() if self.market is not None else ()
        return not (any(each.alive for each in self.workers.values()) or self.training.alive or pods or machines)

    def _store_serves(self, generation: Generation) -> bool:
        return any(term.alive and generation in term.stores for term in self.terms)

    # Faults

    def _plan_faults(self) -> None:
        clockwork = self.clockwork
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("worker killed", self._kill_worker),
            ("worker killed", self._kill_worker),
            ("worker noticed, then killed", self._notice_worker),
            ("several workers killed at once", self._kill_several),
            ("master crashed", lambda: self.crash_master(self._some_master())),
            ("leader crashed", lambda: self.crash_master(self._leader())),
            ("master paused", lambda: self._pause(self._some_master())),
            ("leader paused", lambda: self._pause(self._leader())),
            ("controller crashed", self._crash_controller),
            ("host killed", self._kill_host),
            ("script failed", self._fail_script),
            ("worker cut off", lambda: self._cut_off(self._some_worker())),
            ("leader cut off", lambda: self._cut_off(self._leader())),
            ("controller cut off", lambda: self._cut_off(self._some_controller())),
            ("bus away", self._bus_away),
            ("store killed", self._kill_store),
        ]
        for _ in range(clockwork.chance.randint(2, 14)):
            name, make = clockwork.chance.choice(kinds)
            at_s = clockwork.chance.uniform(0.5, clockwork.faults.until_s - clockwork.now_s)
            clockwork.after(at_s, partial(self._make, name, make))

        if self.market is not None:
            self._plan_cloud_faults(self.market)
        self._plan_stuck_loops()

    def _plan_stuck_loops(self) -> None:
        """Plans stuck loops in every fourth seed, from a separate random stream that leaves other seeds the same."""
        clockwork = self.clockwork
        if clockwork.seed % 4 != 1:
            return
        chance = random.Random(f"stuck loops {clockwork.seed}")
        for _ in range(chance.choice((1, 2))):
            at_s = chance.uniform(0.5, clockwork.faults.until_s - clockwork.now_s)
            block = partial(self._block_leader, chance.choice((1.0, 5.0, 9.0, 12.0, 15.0)))
            clockwork.after(at_s, partial(self._make, "leader's main loop stuck", block))

    def _plan_cloud_faults(self, market: Market) -> None:
        clockwork = self.clockwork
        kinds = [*CloudFaults(self, market).kinds(), ("scaled", self.owner.scale)]
        for _ in range(clockwork.chance.randint(2, 12)):
            name, make = clockwork.chance.choice(kinds)
            at_s = clockwork.chance.uniform(0.5, clockwork.faults.until_s - clockwork.now_s)
            clockwork.after(at_s, partial(self._make, name, make))

    def _make(self, name: str, make: Callable[[], None]) -> None:
        if self._ended:
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

    def _some_master(self) -> MasterProcess:
        return self.clockwork.chance.choice(self.masters)

    def _leader(self) -> MasterProcess:
        return next((master for master in self.masters if is_leader(master)), self.masters[0])

    def _new_master(self) -> MasterProcess:
        self._masters += 1
        return MasterProcess(self, f"master {self._masters}")

    def crash_master(self, master: MasterProcess) -> None:
        if master.alive:
            master.crash()
            self.clockwork.after(self.clockwork.chance.uniform(0.1, 8.0), lambda: self._replace(master))

    def _replace(self, master: MasterProcess) -> None:
        self.masters[self.masters.index(master)] = self._new_master()

    def _pause(self, master: MasterProcess) -> None:
        if master.alive and not master.paused:
            master.pause(self.clockwork.chance.choice((0.3, 1.5, 2.1, 3.0, 8.0)))

    def _block_leader(self, block_s: float) -> None:
        master = self._leader()
        if master.alive and master.stuck_since_s is None:
            master.block(block_s)

    def _kill_store(self) -> None:
        term = self._leader().term
        if term is not None and term.alive:
            term.lose_store()

    def _some_controller(self) -> ControllerActor:
        return self.clockwork.chance.choice([each for name, each in self.controllers.items() if name != BARREN])

    def _crash_controller(self) -> None:
        controller = self._some_controller()
        if controller.alive:
            controller.alive = False
            after_s = self.clockwork.chance.uniform(0.1, 8.0)
            self.clockwork.after(after_s, lambda: self._restart_controller(controller.cluster))

    def _restart_controller(self, cluster: ClusterName) -> None:
        self.controllers[cluster] = self._new_controller(cluster)

    def _new_controller(self, cluster: ClusterName) -> ControllerActor:
        self._controllers += 1
        made = ControllerActor(self, cluster, f"{self._controllers:06x}", self.known.get(cluster))
        self.incarnations[made.state.incarnation] = made
        return made

    def _add_barren(self) -> None:
        """Adds a second cluster that starts no worker; in some seeds it also falls silent."""
        self.clockwork.made["cluster that brings no worker"] += 1
        self.hosts[BARREN] = NoWorkers()
        barren = self.controllers[BARREN] = self._new_controller(BARREN)
        if self.clockwork.chance.random() < 0.5:
            barren.later(5.0, lambda: setattr(barren, "alive", False))

    def _cut_off(self, actor: Actor | None) -> None:
        if isinstance(actor, MasterProcess | ControllerActor | WorkerActor) and actor.alive and actor.connected:
            actor.reconnect(False)
            self.clockwork.after(
                self.clockwork.chance.uniform(0.5, 12.0), lambda: actor.reconnect(True) if actor.alive else None
            )

    def _bus_away(self) -> None:
        for actor in (*self.masters, *self.controllers.values(), *self.workers.values()):
            self._cut_off(actor)
