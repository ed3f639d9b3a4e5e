"""One job's allocator against a simulated cloud, by seed: first faults, then they stop and all must be as wanted."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import assert_never

from controlplane.allocator import events
from controlplane.allocator.counting import ceiling
from controlplane.allocator.effects import (
    AllocatorEffect,
    Announce,
    CreatePool,
    DeletePool,
    FollowMarket,
    ListPools,
    MakePlan,
    Place,
    RemoveNodes,
    ResizePool,
    ShareStock,
)
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import Allocator, new_allocator
from controlplane.clouds.interface import PoolRef
from controlplane.planning.market import Quotas
from messages.clusters import NodeObservation
from messages.ids import ClusterName, JobName
from tests.allocator.account import Account
from tests.allocator.actor import Actor
from tests.allocator.simulated_cloud import Machine, SimulatedCloud
from tests.allocator.stage import next_want
from tests.allocator.wire import STRAY_S, Request, Wire
from tests.planning.builders import DISK_GB, needs_of
from tests.simulation.clockwork import Broken, Clockwork

JOB = JobName("simulated")
CLUSTERS = (ClusterName("us"), ClusterName("eu"))
SETTINGS = AllocatorSettings(
    stockout_s=3.0,
    stockout_max_s=15.0,
    quota_s=10.0,
    quota_max_s=20.0,
    loss_cooldown_s=10.0,
    retry_s=0.5,
    retry_max_s=4.0,
    unready_s=4.0,
    unready_timeout_s=12.0,
    linger_s=6.0,
    owed_s=3.0,
    arrival_s=25.0,
    recent_s=20.0,
    hang_s=5.0,
    fresh_s=4.0,
    doubt_s=2.0,
    relist_s=8.0,
    relist_updating_s=2.0,
    list_timeout_s=10.0,
    quiet_s=5.0,
)
HEAL_S = 150.0


class Fate(StrEnum):
    """The end of a node that hangs."""

    RECOVERS = "it recovers"
    IS_REPAIRED = "it is repaired"
    STAYS = "it stays so"


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    broken: str | None
    faults: Counter[str]
    story: list[str]


class PausedClockwork(Clockwork):
    """A clockwork that can run on after a deadline: later events are not lost."""

    def run_until(self, done: Callable[[], bool], deadline_s: float) -> bool:
        while self._queue and self._queue[0][0] <= deadline_s and not done():
            at_s, _, what = heapq.heappop(self._queue)
            self.now_s = max(self.now_s, at_s)
            what()
        return done()


class System:
    """The parts are created in the order of the methods below, so that a seed always gives the same run."""

    account_kind: type[Account] = Account

    def __init__(self, seed: int) -> None:
        self.clockwork = PausedClockwork(seed)
        chance = self.clockwork.chance
        self.offers = self._make_offers()
        self.room = sum(offer.max_nodes for offer in self.offers)
        self.wanted = chance.randint(1, min(8, self.room))
        capacities = {offer.zone: chance.randint(0, 6) for offer in self.offers}
        self.cloud = SimulatedCloud(self.clockwork, capacities, CLUSTERS)
        self.cloud.limits = {pool_ref(JOB, offer): offer.max_nodes for offer in self.offers}
        self.cloud.needs = {pool_ref(JOB, offer): needs_of(offer.kind) for offer in self.offers}
        self.cloud.on_quota_refusal = self._tell_quotas_soon
        self.cloud.on_change = self._send_observation
        self.wire = Wire(self.clockwork, self.cloud)
        self.account = self.account_kind(self.clockwork, self.cloud, self.wire)
        self.sent_observations: dict[int, tuple[NodeObservation, ...]] = {}
        self.cut_off: set[ClusterName] = set()
        self.ended: str | None = None
        self.early_end = chance.random() < 0.2
        self.quiet = False
        """Only single preemptions happen: a surplus node has one excuse only, and no used node is removed."""
        self.uncounted: set[tuple[PoolRef, str]] = set()
        """Nodes of slots that no longer counted: written off, or of a pool that hung for too long."""
        self.abandoned: dict[PoolRef, frozenset[str]] = {}
        """Such pools, and the nodes that they had when they were given up."""
        self.cloud.on_shrink = self._shrunk
        self.prepare()
        self.actor = self._new_actor()

    def _make_offers(self) -> tuple[Offer, ...]:
        chance = self.clockwork.chance
        return tuple(
            Offer(CLUSTERS[number % 2], f"zone-{number}", "n1-standard-8", chance.randint(1, 6), "nvidia-tesla-t4", 1)
            for number in range(chance.randint(1, 5))
        )

    def prepare(self) -> None:
        """A hook for systems that need more setup."""

    def new_allocator(self) -> Allocator:
        now_s = self.clockwork.now_s
        return new_allocator(JOB, self.offers, wanted=self.wanted, at_s=now_s, ended=self.ended, settings=SETTINGS)

    def _new_actor(self) -> Actor:
        self._tell_quotas_soon()
        return Actor(self, self.new_allocator(), self.clockwork)

    def run(self) -> Result:
        broken = None
        try:
            self._go()
        except Broken as error:
            broken = str(error)
            self.clockwork.tell(f"BROKEN: {broken}")
        return Result(self.clockwork.seed, broken, self.clockwork.made, self.clockwork.story)

    def _go(self) -> None:
        clockwork = self.clockwork
        for cluster in CLUSTERS:
            self._beat(cluster)
        self.work()
        self._plan_faults()
        clockwork.run_until(lambda: False, clockwork.faults.until_s)
        clockwork.now_s = clockwork.faults.until_s
        self.be_kind()
        if self.ended is None:
            self.must(self.is_as_wanted, "as wanted after the faults stopped")
            for _ in range(3):
                self.quiet = True
                self._preempt_calmly()
                self.must(self.is_as_wanted, "as wanted after one more loss")
            self._refill_unseen()
            self.must(self.is_as_wanted, "as wanted after a slot was filled again unseen")
            self.quiet = False
            for fate in Fate:
                self._hang(fate)
                self.must(self.is_as_wanted, f"as wanted after a node hung: {fate}")
            for surge in (False, True):
                self._upgrade(surge)
                self.must(self.is_as_wanted, f"as wanted after an upgrade, {'with' if surge else 'without'} a surge")
            self._lose_a_region()
            self.must(self.is_as_wanted, "as wanted after a region came back")
            self.try_more()
            self._end("succeeded")
        self.must(self._is_gone, "gone after the end")

    def must(self, holds: Callable[[], bool], what: str) -> None:
        if not self.clockwork.run_until(holds, self.clockwork.now_s + HEAL_S):
            pools = {ref.pool: (pool.target, len(pool.machines)) for ref, pool in self.cloud.pools.items()}
            raise Broken(f"not {what} within {HEAL_S:g} s: {self.actor.allocator.why}; the cloud has {pools}")
        self.clockwork.tell(what)

    def is_as_wanted(self) -> bool:
        return self.is_at_rest() and len(self.cloud.running()) == self.wanted == self.cloud.target

    def is_at_rest(self) -> bool:
        """Report whether no operation is in progress or in doubt."""
        return (
            self.actor.alive
            and self.wire.is_quiet
            and not any(pool.busy or pool.updating for pool in self.cloud.pools.values())
            and not any(pool.doubt is not None or pool.updating for pool in self.actor.allocator.pools.values())
        )

    def _is_gone(self) -> bool:
        return not self.cloud.pools and self.actor.alive and self.actor.allocator.finished

    # The shell

    def perform(self, actor: Actor, effect: AllocatorEffect) -> None:
        match effect:
            case CreatePool() | ResizePool() | RemoveNodes() | DeletePool():
                operation = actor.allocator.pools[effect.ref].operation
                request = Request(effect, operation is not None and operation.raises)
                self.account.check(actor, request)
                self.wire.send(actor, request)
            case ListPools(listing, _):
                self.wire.list_pools(actor, listing)
            case MakePlan():
                self.make_plan(actor, effect)
            case Place() | FollowMarket() | ShareStock():
                pass
            case Announce(kind, text, why, _):
                self.clockwork.tell(f"[{kind}] {text} ({why})")
            case _:
                assert_never(effect)

    def make_plan(self, actor: Actor, ask: MakePlan) -> None:
        raise Broken(f"plan {ask.number} was asked for, though nothing is planned")

    def decided(self, allocator: Allocator) -> None:
        """A slot that the cloud refills after it was written off may be surplus for a while; nothing else may."""
        if not self.quiet:
            return
        for ref, pool in allocator.pools.items():
            self.uncounted |= {(ref, name) for name in pool.written_off}
            if pool.abandoned:
                self.abandoned.setdefault(ref, frozenset(pool.nodes))
            self.uncounted |= {(ref, name) for name in pool.nodes.keys() - self.abandoned.get(ref, pool.nodes.keys())}
        most = ceiling(replace(allocator, idle_cap=None))
        found = [
            node.name
            for ref, pool in allocator.pools.items()
            for node in pool.nodes.values()
            if node.counts and (ref, node.name) not in self.uncounted
        ]
        if len(found) > most:
            raise Broken(f"{found} are held, {most} are the most, after no more than a preemption")

    def _shrunk(self, machine: Machine) -> None:
        if self.quiet and machine.uid in self.account.busy:
            raise Broken(f"{machine.name}, which the job uses, was let go by the cloud for one that was lost")

    # The job and its clusters

    def _beat(self, cluster: ClusterName) -> None:
        self._send_observation(cluster)
        self.clockwork.after(1.0, lambda: self._beat(cluster))

    def _send_observation(self, cluster: ClusterName) -> None:
        if cluster in self.cut_off:
            return
        number = len(self.sent_observations) + 1
        self.sent_observations[number] = self.cloud.observation(cluster)
        self.clockwork.send(lambda: self.actor.see(cluster, number))

    def idle(self, cluster: ClusterName) -> tuple[str, ...]:
        return tuple(
            machine.name
            for uid, (pool, machine) in self.cloud.running().items()
            if pool.ref.cluster == cluster and uid not in self.account.busy
        )

    def work(self) -> None:
        """Use nodes while more are wanted, and release any when there are too many."""
        running = self.cloud.running()
        self.account.busy = {uid: since_s for uid, since_s in self.account.busy.items() if uid in running}
        for uid in sorted(self.account.busy)[self.wanted :]:
            del self.account.busy[uid]
        for uid in sorted(running):
            if uid not in self.account.busy and len(self.account.busy) < self.wanted:
                self.account.busy[uid] = self.clockwork.now_s
        self.clockwork.after(0.5, self.work)

    # Faults

    def _plan_faults(self) -> None:
        clockwork = self.clockwork
        kinds = self.faults()
        for _ in range(clockwork.chance.randint(3, 20)):
            name, make = clockwork.chance.choice(kinds)
            at_s = clockwork.chance.uniform(0.5, clockwork.faults.until_s - clockwork.now_s)
            clockwork.after(at_s, partial(self._make, name, make))
        if self.early_end:
            at_s = clockwork.chance.uniform(1.0, clockwork.faults.until_s - clockwork.now_s)
            clockwork.after(at_s, lambda: self._end("stopped"))

    def faults(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("node preempted", lambda: self._preempt(0.0)),
            ("node preempted", lambda: self._preempt(0.0)),
            ("node noticed, then preempted", lambda: self._preempt(5.0)),
            ("several nodes preempted at once", self._preempt_several),
            ("node hung", lambda: self._hang(self.clockwork.chance.choice(list(Fate)))),
            ("pool upgraded", lambda: self._upgrade(self.clockwork.chance.random() < 0.5)),
            ("zone stocked out", self._stock_out),
            ("zone has machines again", self._restock),
            ("allocator crashed", self._crash),
            ("cluster cut off", self._cut_off),
            ("other number wanted", self.want),
            ("pool deleted by a person", self._delete_a_pool),
            ("quota changed", self._change_quota),
        ]

    def _make(self, name: str, make: Callable[[], None]) -> None:
        self.clockwork.made[name] += 1
        self.clockwork.tell(f"FAULT: {name}")
        make()

    def _preempt(self, notice_s: float) -> None:
        running = list(self.cloud.running().values())
        if not running:
            return
        pool, machine = self.clockwork.chance.choice(running)
        self.clockwork.tell(f"{machine.name} is taken")
        self.cloud.preempt(pool, machine, notice_s)

    def _hang(self, fate: Fate) -> None:
        running = list(self.cloud.running().values())
        if not running:
            return
        pool, machine = self.clockwork.chance.choice(running)
        self.clockwork.tell(f"{machine.name} hangs: {fate}")
        self.clockwork.made[f"node hung: {fate}"] += 1
        after_s = self.clockwork.chance.uniform(1.0, SETTINGS.unready_timeout_s)
        match fate:
            case Fate.RECOVERS:
                self.cloud.hang(pool, machine, after_s, partial(self.cloud.recover, pool, machine))
            case Fate.IS_REPAIRED:
                self.cloud.hang(pool, machine, after_s, partial(self.cloud.repair, pool, machine))
            case Fate.STAYS:
                self.cloud.hang(pool, machine, after_s, lambda: None)
        self.clockwork.run_until(lambda: False, self.clockwork.now_s + 1.0)

    def _upgrade(self, surge: bool) -> None:
        pools = [pool for pool in self.cloud.pools.values() if pool.machines]
        if pools:
            pool = self.clockwork.chance.choice(pools)
            self.clockwork.tell(f"{pool.ref.pool} is upgraded, surge: {surge}")
            self.cloud.upgrade(pool, surge)

    def _preempt_several(self) -> None:
        for _ in range(self.clockwork.chance.randint(2, 4)):
            self._preempt(self.clockwork.chance.choice((0.0, 5.0)))

    def _preempt_calmly(self) -> None:
        chance = self.clockwork.chance
        self.clockwork.tell("one more loss")
        self._preempt(chance.choice((0.0, 5.0)))
        self.clockwork.run_until(lambda: False, self.clockwork.now_s + 6.0)

    def _refill_unseen(self) -> None:
        """A slot is refilled before its removal arrives, and before the new node is reported."""
        crowded = [found for found in self.cloud.running().values() if len(found[0].machines) > 1]
        if not crowded:
            return
        pool, machine = self.clockwork.chance.choice(crowded)
        self.clockwork.made["slot filled again unseen"] += 1
        self.clockwork.tell(f"{machine.name} is taken, and its slot filled again unseen")
        boot_s = self.cloud.boot_s
        self.cloud.boot_s, self.wire.slow_s = (0.05, 0.1), STRAY_S
        self.cloud.take_at_once(pool, machine)
        self.cut_off.add(pool.ref.cluster)
        self.clockwork.run_until(lambda: False, self.clockwork.now_s + 2 * STRAY_S)
        self.cut_off.discard(pool.ref.cluster)
        self.cloud.boot_s, self.wire.slow_s = boot_s, None

    def _tell_of_darkness(self, cluster: ClusterName) -> None:
        """Repeat the report while it is true, as a master does."""
        if cluster in self.cloud.dark:
            self.actor.post(next_want(self.actor.allocator, self.clockwork.now_s, lost=frozenset({cluster})))
            self.clockwork.after(1.0, partial(self._tell_of_darkness, cluster))

    def _lose_a_region(self) -> None:
        """The other regions must provide what they can while this one is lost."""
        cluster = self.clockwork.chance.choice(CLUSTERS)
        self.clockwork.made["region lost"] += 1
        self.clockwork.tell(f"region of {cluster} is lost")
        self.cut_off.add(cluster)
        self.cloud.lose_region(cluster)
        self.clockwork.after(self.clockwork.chance.uniform(0.1, 3.0), partial(self._tell_of_darkness, cluster))
        self.must_live_without(cluster)
        self.cloud.dark.clear()
        self.cut_off.clear()

    def must_live_without(self, cluster: ClusterName) -> None:
        elsewhere = sum(offer.max_nodes for offer in self.offers if offer.cluster != cluster)
        enough = min(self.wanted, elsewhere)
        self.must(lambda: len(self.cloud.running()) == enough, f"{enough} nodes without that region")

    def try_more(self) -> None:
        """A hook for systems with other faults."""

    def _stock_out(self) -> None:
        self.cloud.capacities[self.clockwork.chance.choice(self.offers).zone] = 0

    def _restock(self) -> None:
        self.cloud.capacities[self.clockwork.chance.choice(self.offers).zone] = self.clockwork.chance.randint(1, 6)

    def _crash(self) -> None:
        if not self.actor.alive:
            return
        self.actor.alive = False
        self.wire.crash(self.actor)
        self.clockwork.after(self.clockwork.chance.uniform(STRAY_S + 0.1, 8.0), self._restart)

    def _restart(self) -> None:
        self.actor = self._new_actor()

    def _cut_off(self) -> None:
        cluster = self.clockwork.chance.choice(CLUSTERS)
        self.cut_off.add(cluster)
        self.clockwork.after(self.clockwork.chance.uniform(1.0, 10.0), lambda: self.cut_off.discard(cluster))

    def want(self) -> None:
        self.wanted = self.clockwork.chance.randint(1, min(8, self.room))
        self._tell_want()

    def _tell_want(self) -> None:
        now_s = self.clockwork.now_s
        self.actor.post(next_want(self.actor.allocator, now_s, nodes=self.wanted, ended=self.ended))

    def _delete_a_pool(self) -> None:
        idle = [pool for pool in self.cloud.pools.values() if not pool.busy]
        if idle:
            pool = self.clockwork.chance.choice(idle)
            del self.cloud.pools[pool.ref]
            self._send_observation(pool.ref.cluster)

    def _change_quota(self) -> None:
        """A quota changes, by a person or by use of others; the job reads it after a delay."""
        key = self.clockwork.chance.choice(sorted({key for needs in self.cloud.needs.values() for key in needs}))
        self.cloud.quotas[key] = self.clockwork.chance.randint(0, 6) * (DISK_GB if key.metric == "DISK_GB" else 1)
        self._tell_quotas_soon()

    def quotas(self) -> Quotas:
        """The quotas as read for this job, which is the only one."""
        needs = {offer.kind: needs_of(offer.kind) for offer in self.offers}
        return Quotas(dict(self.cloud.quotas), needs if self.cloud.quotas else {})

    def _tell_quotas_soon(self) -> None:
        self.clockwork.after(self.clockwork.chance.uniform(0.01, 3.0), lambda: self.tell_quotas())

    def tell_quotas(self) -> None:
        self.actor.post(events.QuotasSeen(self.clockwork.now_s, self.quotas()))

    def _end(self, why: str) -> None:
        self.ended = why
        self.clockwork.tell(f"the job has {why}")
        self._tell_want()

    def be_kind(self) -> None:
        """From now on machines are available, and no message is lost."""
        self.clockwork.tell("the faults stop")
        self.cut_off.clear()
        self.cloud.quotas.clear()
        self.tell_quotas()
        for offer in self.offers:
            self.cloud.capacities[offer.zone] = offer.max_nodes
        if self.actor.alive:
            self._tell_want()


def simulate(seed: int) -> Result:
    return System(seed).run()


def run_seeds(simulated: Callable[[int], Result], seeds: Iterable[int]) -> tuple[Counter[str], list[str]]:
    """The faults that were made, and what broke."""
    faults: Counter[str] = Counter()
    broken = []
    for result in map(simulated, seeds):
        faults += result.faults
        if result.broken is not None:
            broken.append(f"seed {result.seed}: {result.broken}")
    return faults, broken
