"""One job's allocator against a simulated cloud, by seed: first faults, then they stop and all must be as wanted."""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from controlplane.allocator import events
from controlplane.allocator.counting import doomed, held, lost
from controlplane.allocator.decide import decide
from controlplane.allocator.effects import (
    AllocatorEffect,
    Announce,
    Change,
    CreatePool,
    DeletePool,
    ListPools,
    RemoveNodes,
    ResizePool,
)
from controlplane.allocator.invariants import check
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.state import Allocator, AllocatorSettings, new_allocator
from controlplane.clouds.interface import ClusterInfo, PoolRef
from controlplane.clouds.outcomes import Outcome, Unreachable
from messages.clusters import NodeSight
from messages.ids import ClusterName, JobName
from tests.allocator.simulated_cloud import CloudPool, Machine, SimulatedCloud
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
    linger_s=6.0,
    owed_s=3.0,
    arrival_s=25.0,
    hang_s=5.0,
    fresh_s=4.0,
    doubt_s=2.0,
    relist_s=8.0,
    list_timeout_s=10.0,
    quiet_s=5.0,
)
STRAY_S = 1.5
"""How late a request can still arrive whose sender has given up on it, or died."""
HEAL_S = 150.0
SOME_TIME_S = 1e-5


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    broken: str | None
    faults: Counter[str]
    story: list[str]


@dataclass
class Request:
    """A change that was sent, and of which nobody has heard the end."""

    change: Change
    raises: bool
    travelling: bool = True
    waited_for: bool = True
    """The allocator that sent it is alive and was not told how it ended."""


class Actor:
    """The allocator's process: core and simulated shell."""

    def __init__(self, system: "System", wanted: int, ended: str | None) -> None:
        self.system = system
        self.clockwork = system.clockwork
        self.alive = True
        self.allocator: Allocator = new_allocator(
            JOB, system.offers, wanted=wanted, at_s=self.clockwork.now_s, ended=ended, settings=SETTINGS
        )
        self.seen: set[str] = set()
        """Uids of machines that this process was told of."""
        self.sights: dict[ClusterName, int] = {}
        self._wake = 0
        self.clockwork.after(0.0, lambda: self.post(events.Ticked(self.clockwork.now_s)))

    def post(self, event: events.AllocatorEvent) -> None:
        if not self.alive:
            return
        before = self.allocator
        decision = decide(before, event)
        self.allocator = decision.state
        broken = check(before, self.allocator, decision.effects)
        if broken:
            raise Broken(f"after {event}: {'; '.join(broken)}")
        self.system.check_calm(self.allocator)
        for effect in decision.effects:
            self.system.perform(self, effect)
        self._wake_at(decision.wake_at_s)

    def see(self, cluster: ClusterName, number: int) -> None:
        """The shell drops topologies that are older than one it had."""
        if number > self.sights.get(cluster, 0) and self.alive:
            self.sights[cluster] = number
            sight = self.system.sent_sights[number]
            self.seen |= {node.uid for node in sight}
            self.post(events.NodesSeen(self.clockwork.now_s, cluster, sight))

    def _wake_at(self, at_s: float | None) -> None:
        self._wake += 1
        mine = self._wake

        def tick() -> None:
            if mine == self._wake:
                self.post(events.Ticked(self.clockwork.now_s))

        if at_s is not None:
            self.clockwork.after(max(SOME_TIME_S, at_s - self.clockwork.now_s), tick)


class PausedClockwork(Clockwork):
    """Can be run on after a deadline: what is due later is not lost."""

    def run_until(self, done: Callable[[], bool], deadline_s: float) -> bool:
        while self._queue and self._queue[0][0] <= deadline_s and not done():
            at_s, _, what = heapq.heappop(self._queue)
            self.now_s = max(self.now_s, at_s)
            what()
        return done()


class System:
    def __init__(self, seed: int) -> None:
        self.clockwork = PausedClockwork(seed)
        chance = self.clockwork.chance
        self.offers = tuple(
            Offer(CLUSTERS[number % 2], f"zone-{number}", "n1-standard-8", chance.randint(1, 6), "nvidia-tesla-t4", 1)
            for number in range(chance.randint(1, 5))
        )
        self.room = sum(offer.max_nodes for offer in self.offers)
        self.wanted = chance.randint(1, min(8, self.room))
        capacities = {offer.zone: chance.randint(0, 6) for offer in self.offers}
        self.cloud = SimulatedCloud(self.clockwork, capacities, CLUSTERS)
        self.cloud.limits = {pool_ref(JOB, offer): offer.max_nodes for offer in self.offers}
        self.cloud.on_change = self._send_sight
        self.requests: list[Request] = []
        self.sent_sights: dict[int, tuple[NodeSight, ...]] = {}
        self.cut_off: set[ClusterName] = set()
        self.busy: dict[str, float] = {}
        """Uids of machines that the job uses, and since when."""
        self.ended: str | None = None
        self.early_end = chance.random() < 0.2
        self.calm = False
        """Nothing but single preemptions happens: there is no excuse for a node too many."""
        self.actor = Actor(self, self.wanted, None)

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
        self._work()
        self._plan_faults()
        clockwork.run_until(lambda: False, clockwork.faults.until_s)
        clockwork.now_s = clockwork.faults.until_s
        self._be_kind()
        if self.ended is None:
            self._must(self._is_as_wanted, "as wanted after the faults stopped")
            for _ in range(3):
                self.calm = True
                self._preempt_calmly()
                self._must(self._is_as_wanted, "as wanted after one more loss")
            self.calm = False
            self._lose_a_region()
            self._must(self._is_as_wanted, "as wanted after a region came back")
            self._end("succeeded")
        self._must(self._is_gone, "gone after the end")

    def _must(self, holds: Callable[[], bool], what: str) -> None:
        if not self.clockwork.run_until(holds, self.clockwork.now_s + HEAL_S):
            pools = {ref.pool: (pool.target, len(pool.machines)) for ref, pool in self.cloud.pools.items()}
            raise Broken(f"not {what} within {HEAL_S:g} s: {self.actor.allocator.why}; the cloud has {pools}")
        self.clockwork.tell(what)

    def _is_as_wanted(self) -> bool:
        running = self.cloud.running()
        under_way = any(request.waited_for or request.travelling for request in self.requests)
        under_way |= any(pool.busy for pool in self.cloud.pools.values())
        under_way |= any(pool.doubt is not None for pool in self.actor.allocator.pools.values())
        return len(running) == self.wanted == self.cloud.target and not under_way and self.actor.alive

    def _is_gone(self) -> bool:
        return not self.cloud.pools and self.actor.alive and self.actor.allocator.finished

    # The shell

    def perform(self, actor: Actor, effect: AllocatorEffect) -> None:
        match effect:
            case CreatePool() | ResizePool() | RemoveNodes() | DeletePool():
                self.clockwork.tell(f"asks: {_words(effect)}")
                self._send(actor, effect)
            case ListPools(listing, _):
                self._list(actor, listing)
            case Announce(kind, text, why, _):
                self.clockwork.tell(f"[{kind}] {text} ({why})")

    def _send(self, actor: Actor, change: Change) -> None:
        clockwork = self.clockwork
        operation = actor.allocator.pools[change.ref].operation
        request = Request(change, operation is not None and operation.raises)
        self._check_send(actor, request)
        self.requests.append(request)
        told = False

        def answer(outcome: Outcome) -> None:
            nonlocal told
            if not told:
                told = True
                request.waited_for = False
                clockwork.tell(f"answer to {_words(change)}: {outcome}")
                actor.post(events.OperationEnded(clockwork.now_s, change.ref, change.operation, outcome))

        def give_up() -> None:
            answer(Unreachable("connection lost"))

        def arrive() -> None:
            request.travelling = False
            self.cloud.receive(change, lambda outcome: clockwork.after(self._travel_s(), lambda: reply(outcome)))

        def reply(outcome: Outcome) -> None:
            if clockwork.happens(0.05, "answer lost"):
                clockwork.after(1.0, give_up)
            else:
                answer(outcome)

        if change.ref.cluster in self.cloud.dark or clockwork.happens(0.05, "request lost"):
            request.travelling = False
            clockwork.after(1.0, give_up)
        elif clockwork.happens(0.05, "request late, and given up"):
            clockwork.after(0.2, give_up)
            clockwork.after(clockwork.chance.uniform(0.3, STRAY_S), arrive)
        else:
            clockwork.after(self._travel_s(), arrive)

    def _list(self, actor: Actor, number: int) -> None:
        clockwork = self.clockwork

        def look() -> None:
            clusters = self.cloud.listing()
            late = clockwork.happens(0.3, "listing late")
            clockwork.after(clockwork.chance.uniform(0.5, 3.0) if late else self._travel_s(), lambda: tell(clusters))

        def tell(clusters: tuple[ClusterInfo, ...]) -> None:
            actor.post(events.PoolsListed(clockwork.now_s, number, clusters))

        if clockwork.happens(0.1, "listing failed"):
            failed = Unreachable("connection lost")
            clockwork.after(0.3, lambda: actor.post(events.ListingFailed(clockwork.now_s, number, failed)))
        else:
            clockwork.after(self._travel_s(), look)

    def _travel_s(self) -> float:
        if self.clockwork.happens(0.1, "slow request"):
            return self.clockwork.chance.uniform(0.1, STRAY_S)
        return self.clockwork.chance.uniform(0.001, 0.05)

    # What must always hold, by the cloud's own account

    def _check_send(self, actor: Actor, request: Request) -> None:
        change = request.change
        waiting = [other for other in self.requests if other.waited_for and other.change.ref == change.ref]
        if waiting:
            raise Broken(f"two operations at once on pool {change.ref.pool}")
        pool = self.cloud.pools.get(change.ref)
        if request.raises:
            self._check_cap(actor, request)
        elif isinstance(change, ResizePool) and pool is not None:
            known = [uid for uid, (home, _) in self.cloud.running().items() if home is pool and uid in actor.seen]
            if change.size < len(known):
                raise Broken(f"pool {change.ref.pool} shrinks to {change.size}, it has {len(known)} known nodes")
        elif isinstance(change, RemoveNodes) and pool is not None:
            for name in change.nodes:
                self._check_unused(actor, pool.machines.get(name))

    def check_calm(self, allocator: Allocator) -> None:
        count = sum(held(pool) for pool in allocator.pools.values())
        hanging = any(pool.hanging_s is not None for pool in allocator.pools.values())
        if self.calm and count > allocator.wanted and not hanging:
            raise Broken(f"{count} of {allocator.wanted} nodes are held, after no more than a preemption")

    def _check_unused(self, actor: Actor, machine: Machine | None) -> None:
        if machine is None or machine.uid not in actor.seen or machine.life != "running":
            return
        since_s = self.busy.get(machine.uid)
        if since_s is not None and self.clockwork.now_s - since_s > 3.0:
            raise Broken(f"node {machine.name} is removed though the job uses it")

    def _check_cap(self, actor: Actor, request: Request) -> None:
        """What the cloud may come to aim at, whatever arrives of what was sent."""
        refs = {*self.cloud.pools, *(other.change.ref for other in self.requests), request.change.ref}
        may_come = {ref.pool: self._most(actor, ref, request) for ref in refs}
        if sum(may_come.values()) > actor.allocator.wanted:
            raise Broken(f"{may_come} nodes may come, {actor.allocator.wanted} are wanted")

    def _most(self, actor: Actor, ref: PoolRef, sent: Request) -> int:
        pool = self.cloud.pools.get(ref)
        aims = [pool.target if pool is not None else 0]
        open_requests = [
            other
            for other in (*self.requests, sent)
            if other.change.ref == ref and (other.waited_for or other.travelling)
        ]
        known = actor.allocator.pools.get(ref)
        if known is not None and known.given_up and not any(request.raises for request in open_requests):
            return held(known)
        going = len(known.written_off) if known is not None else 0
        if known is not None and not any(request.raises for request in open_requests):
            going += doomed(known)
        for request in open_requests:
            size = _size(request.change)
            if request.raises and size is not None:
                aims.append(size)
            elif request.waited_for and isinstance(request.change, ResizePool):
                aims = [request.change.size]
            elif request.waited_for and isinstance(request.change, RemoveNodes) and known is not None:
                removed = ({node.name for node in lost(known)} | known.vacant.keys()) - known.written_off
                going += len(removed & set(request.change.nodes))
        return max(0, max(aims) - going)

    # The job and its clusters

    def _beat(self, cluster: ClusterName) -> None:
        self._send_sight(cluster)
        self._send_released(cluster)
        self.clockwork.after(1.0, lambda: self._beat(cluster))

    def _send_sight(self, cluster: ClusterName) -> None:
        if cluster in self.cut_off:
            return
        number = len(self.sent_sights) + 1
        self.sent_sights[number] = self.cloud.sight(cluster)
        self.clockwork.send(lambda: self.actor.see(cluster, number))

    def _send_released(self, cluster: ClusterName) -> None:
        idle = tuple(
            machine.name
            for uid, (pool, machine) in self.cloud.running().items()
            if pool.ref.cluster == cluster and uid not in self.busy
        )
        event = events.NodesReleased(self.clockwork.now_s, cluster, idle)
        self.clockwork.after(0.001, lambda: self.actor.post(event))

    def _work(self) -> None:
        """Takes nodes as long as it wants more, and gives back any when it has too many."""
        running = self.cloud.running()
        self.busy = {uid: since_s for uid, since_s in self.busy.items() if uid in running}
        for uid in sorted(self.busy)[self.wanted :]:
            del self.busy[uid]
        for uid in sorted(running):
            if uid not in self.busy and len(self.busy) < self.wanted:
                self.busy[uid] = self.clockwork.now_s
        self.clockwork.after(0.5, self._work)

    # Faults

    def _plan_faults(self) -> None:
        clockwork = self.clockwork
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("node preempted", lambda: self._preempt(0.0)),
            ("node preempted", lambda: self._preempt(0.0)),
            ("node noticed, then preempted", lambda: self._preempt(5.0)),
            ("several nodes preempted at once", self._preempt_several),
            ("zone stocked out", self._stock_out),
            ("zone has machines again", self._restock),
            ("allocator crashed", self._crash),
            ("cluster cut off", self._cut_off),
            ("other number wanted", self._want),
            ("pool deleted by a person", self._delete_a_pool),
        ]
        for _ in range(clockwork.chance.randint(3, 20)):
            name, make = clockwork.chance.choice(kinds)
            at_s = clockwork.chance.uniform(0.5, clockwork.faults.until_s - clockwork.now_s)
            clockwork.after(at_s, partial(self._make, name, make))
        if self.early_end:
            at_s = clockwork.chance.uniform(1.0, clockwork.faults.until_s - clockwork.now_s)
            clockwork.after(at_s, lambda: self._end("stopped"))

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
        self._preempt_this(pool, machine, notice_s)

    def _preempt_this(self, pool: CloudPool, machine: Machine, notice_s: float) -> None:
        cluster, name, uid = pool.ref.cluster, machine.name, machine.uid
        self.cloud.preempt(pool, machine, notice_s)
        chance = self.clockwork.chance
        if chance.random() < 0.3:
            return

        def tell() -> None:
            now_s = self.clockwork.now_s
            if notice_s:
                self.actor.post(events.NodeNoticed(now_s, cluster, name, notice_s, uid, pool.ref.pool))
            else:
                self.actor.post(events.NodeLost(now_s, cluster, name, uid, pool.ref.pool, "its worker is gone"))

        self.clockwork.send(tell)

    def _preempt_several(self) -> None:
        for _ in range(self.clockwork.chance.randint(2, 4)):
            self._preempt(self.clockwork.chance.choice((0.0, 5.0)))

    def _preempt_calmly(self) -> None:
        chance = self.clockwork.chance
        self.clockwork.tell("one more loss")
        self._preempt(chance.choice((0.0, 5.0)))
        self.clockwork.run_until(lambda: False, self.clockwork.now_s + 6.0)

    def _tell_of_loss(self, lost: events.NodeLost) -> None:
        self.actor.post(replace(lost, at_s=self.clockwork.now_s))

    def _lose_a_region(self) -> None:
        """The others must give what they can while it is away."""
        cluster = self.clockwork.chance.choice(CLUSTERS)
        self.clockwork.made["region lost"] += 1
        self.clockwork.tell(f"region of {cluster} is lost")
        self.cut_off.add(cluster)
        for pool, machine in self.cloud.lose_region(cluster):
            event = events.NodeLost(0.0, cluster, machine.name, machine.uid, pool.ref.pool, "silent for too long")
            delay_s = self.clockwork.chance.uniform(0.1, 3.0)
            self.clockwork.after(delay_s, partial(self._tell_of_loss, event))
        elsewhere = sum(offer.max_nodes for offer in self.offers if offer.cluster != cluster)
        enough = min(self.wanted, elsewhere)
        self._must(lambda: len(self.cloud.running()) == enough, f"{enough} nodes without that region")
        self.cloud.dark.clear()
        self.cut_off.clear()

    def _stock_out(self) -> None:
        self.cloud.capacities[self.clockwork.chance.choice(self.offers).zone] = 0

    def _restock(self) -> None:
        self.cloud.capacities[self.clockwork.chance.choice(self.offers).zone] = self.clockwork.chance.randint(1, 6)

    def _crash(self) -> None:
        if not self.actor.alive:
            return
        self.actor.alive = False
        for request in self.requests:
            request.waited_for = False
        self.clockwork.after(self.clockwork.chance.uniform(STRAY_S + 0.1, 8.0), self._restart)

    def _restart(self) -> None:
        self.actor = Actor(self, self.wanted, self.ended)

    def _cut_off(self) -> None:
        cluster = self.clockwork.chance.choice(CLUSTERS)
        self.cut_off.add(cluster)
        self.clockwork.after(self.clockwork.chance.uniform(1.0, 10.0), lambda: self.cut_off.discard(cluster))

    def _want(self) -> None:
        self.wanted = self.clockwork.chance.randint(1, min(8, self.room))
        self.actor.post(events.WantedChanged(self.clockwork.now_s, self.wanted, "a person asked"))

    def _delete_a_pool(self) -> None:
        idle = [pool for pool in self.cloud.pools.values() if not pool.busy]
        if idle:
            pool = self.clockwork.chance.choice(idle)
            del self.cloud.pools[pool.ref]
            self._send_sight(pool.ref.cluster)

    def _end(self, why: str) -> None:
        self.ended = why
        self.clockwork.tell(f"the job has {why}")
        self.actor.post(events.JobEnded(self.clockwork.now_s, why))

    def _be_kind(self) -> None:
        """From now on machines can be had, and nothing is lost on the way."""
        self.clockwork.tell("the faults stop")
        self.cut_off.clear()
        for offer in self.offers:
            self.cloud.capacities[offer.zone] = offer.max_nodes
        if self.actor.alive:
            self.actor.post(events.WantedChanged(self.clockwork.now_s, self.wanted, "said again"))


def _size(change: Change) -> int | None:
    if isinstance(change, CreatePool):
        return change.plan.size
    return change.size if isinstance(change, ResizePool) else None


def _words(change: Change) -> str:
    match change:
        case CreatePool(number, _, plan, why):
            return f"{number}: create {plan.zone} with {plan.size} ({why})"
        case ResizePool(number, ref, size, why):
            return f"{number}: resize {ref.pool} to {size} ({why})"
        case RemoveNodes(number, ref, nodes, why):
            return f"{number}: remove {', '.join(nodes)} of {ref.pool} ({why})"
        case DeletePool(number, ref, why):
            return f"{number}: delete {ref.pool} ({why})"


def simulate(seed: int) -> Result:
    return System(seed).run()
