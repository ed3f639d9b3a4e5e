"""A planned job in a changing market: prices, quotas, stockouts, criteria; plans come late and may be outdated.

The real planning makes the plans, from the requested inputs, and they arrive after a delay. The checks use the cloud's
own account. At the end, the running nodes must be the ones that a plan from that account would keep.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from controlplane.allocator import events
from controlplane.allocator.counting import ceiling, not_counted, sidelined
from controlplane.allocator.demand import Demand
from controlplane.allocator.effects import MakePlan
from controlplane.allocator.facts import basis_of, target_workers
from controlplane.allocator.learn import learn
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.prospects import supplies_of
from controlplane.allocator.state import Allocator, Kind, new_allocator
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.clouds.interface import PoolRef, QuotaKey
from controlplane.clouds.outcomes import StockedOut
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Option, Quotas
from controlplane.planning.plan import Change, plan
from controlplane.planning.quotas import taken
from controlplane.planning.scoring import breach, score
from controlplane.planning.tuning import Tuning
from controlplane.throughput.use import NodeUse
from messages.criteria import Objective
from messages.ids import ClusterName
from tests.allocator.account import Account
from tests.allocator.actor import Actor, Asker, World
from tests.allocator.simulated_cloud import CloudPool, Machine
from tests.allocator.simulation import CLUSTERS, JOB, SETTINGS, Result, System
from tests.allocator.stage import next_want
from tests.allocator.wire import Request
from tests.planning.builders import HOLLAND, IOWA_A, IOWA_B, MACHINES, OREGON, USD, a_market, a_small_profile, needs_of
from tests.simulation.clockwork import Broken, Clockwork
from tests.simulation.seeds import replay

ZONES = (IOWA_A, IOWA_B, OREGON, HOLLAND)
GKE = {"L4": "nvidia-l4", "A100-40": "nvidia-tesla-a100"}
TUNING = Tuning(alternatives=0)
PLANNED = replace(
    SETTINGS,
    plan_settle_s=0.5,
    plan_every_s=10.0,
    plan_timeout_s=6.0,
    idle_timeout_s=20.0,
    rest_max_s=40.0,
    wary_s=20.0,
)

MEASURED_S = 2.0
"""Seconds for which a restarted master waits for measured steps before it plans."""


class PlannedAccount(Account):
    """Counts money and workers, by the market that the allocator last got."""

    def check_caps(self, actor: Asker, request: Request) -> None:
        demand, market = actor.allocator.demand, actor.allocator.market
        assert demand is not None
        assert isinstance(actor, PlannedActor)
        empty_s = actor.empty_s.get(request.change.ref)
        if empty_s is not None and self.clockwork.now_s < empty_s + PLANNED.stockout_s:
            raise Broken(f"pool {request.change.ref.pool} was raised, where there were no machines a moment ago")
        if market is None:
            raise Broken("something was raised before a market was known")
        coming: dict[MachineKind, int] = {}
        for ref, count in self.may_come(actor, request).items():
            if count:
                choice = actor.allocator.pools[ref].offer.kind
                coming[choice] = coming.get(choice, 0) + count
        most = min(demand.criteria.max_workers, actor.allocator.wanted)
        if sum(coming.values()) > most:
            raise Broken(f"{coming} may come, {most} are the most")
        if len({choice.accelerator for choice in coming}) > 1:
            raise Broken(f"{coming} may come, of two types")
        self._check_money(demand, market, self._with_sidelined(actor, coming))

    def _with_sidelined(self, actor: Asker, coming: dict[MachineKind, int]) -> dict[MachineKind, int]:
        """Sidelined nodes cost money, too."""
        found = Counter(coming)
        for pool in actor.allocator.pools.values():
            found[pool.offer.kind] += sidelined(pool)
        return {choice: count for choice, count in found.items() if count and choice in market_of(actor).options}

    def _check_money(self, demand: Demand, market: Market, coming: dict[MachineKind, int]) -> None:
        cap = demand.criteria.max_micro_usd_per_hour
        found = score(demand.profile, market, coming, TUNING)
        money = sum(market.options[choice].micro_usd_per_hour * count for choice, count in coming.items())
        egress = found.estimate.egress_micro_usd_per_hour if found is not None else 0
        if cap is not None and money + egress > cap:
            raise Broken(f"{coming} may come for {money + egress} micro-dollars an hour, {cap} are allowed")


def market_of(actor: Asker) -> Market:
    assert actor.allocator.market is not None
    return actor.allocator.market


class PlannedActor(Actor):
    """Remembers which zones refused machines."""

    def __init__(self, world: World, allocator: Allocator, clockwork: Clockwork) -> None:
        super().__init__(world, allocator, clockwork)
        self.empty_s: dict[PoolRef, float] = {}

    def post(self, event: events.AllocatorEvent) -> None:
        if self.alive and isinstance(event, events.OperationEnded) and isinstance(event.outcome, StockedOut):
            self.empty_s[event.pool] = event.at_s
        before = self.allocator
        super().post(event)
        if self.alive and self.allocator.ended is None:
            _check_word(learn(before, event), self.allocator, event.at_s)


def _check_word(learned: Allocator, after: Allocator, now_s: float) -> None:
    """Each raise is what a plan from the current facts requests, or at most what was lost."""
    early_s = after.plans.not_before_s
    if after.plans.number > 0 and early_s is not None and now_s < early_s:
        raise Broken("a plan was asked for before steps were measured")
    begun = [pool for pool in after.pools.values() if pool.operation and pool.operation.number > learned.operations]
    raised = {pool.offer.kind for pool in begun if pool.operation and pool.operation.raises}
    basis = basis_of(learned, supplies_of(learned, now_s), now_s) if raised else None
    if basis is None or any(pool.operation and pool.operation.kind is Kind.REMOVE for pool in begun):
        return
    plans, there = learned.plans, basis.current.committed()
    if plans.plan is not None and plans.basis == basis:
        unasked = {choice for choice in raised if plans.plan.ask.get(choice, 0) <= there.get(choice, 0)}
    else:
        gone = sum(not_counted(pool) + len(pool.vacant) for pool in learned.pools.values())
        targeted, here = target_workers(plans), sum(there.values())
        unasked = raised if here >= (here + gone if targeted is None else targeted) else set()
        taken = [pool.offer.kind for pool in learned.pools.values() if pool.vacant or not_counted(pool)]
        types = {choice.accelerator for choice in there or taken}
        unasked |= {choice for choice in raised if choice.accelerator not in types}
    if unasked:
        raise Broken(f"{unasked} raised by nobody's word: {basis}, {plans.plan} of {plans.basis}")


class PlannedSystem(System):
    account_kind = PlannedAccount

    def _make_offers(self) -> tuple[Offer, ...]:
        chance = self.clockwork.chance
        kinds = [(zone, name) for zone in ZONES for name in GKE]
        chosen = chance.sample(kinds, chance.randint(2, 4))
        offers = [
            Offer(CLUSTERS[zone == HOLLAND], zone, MACHINES[name], chance.randint(2, 5), GKE[name], 1)
            for zone, name in chosen
        ]
        if chance.random() < 0.3:
            offers.append(replace(offers[0], spot=False))
        if chance.random() < 0.3:
            offers.append(replace(offers[0], cluster=CLUSTERS[offers[0].cluster == CLUSTERS[0]]))
        return tuple(offers)

    def prepare(self) -> None:
        chance = self.clockwork.chance
        by_kind: dict[str, int] = {}
        for offer in self.offers:
            if offer.spot:
                name = offer.kind.accelerator
                by_kind[name] = by_kind.get(name, 0) + offer.max_nodes
        least = chance.randint(1, min(3, *by_kind.values()))
        self.profile = a_small_profile(gradient_bytes=chance.choice((0, 10**6, 10**8)))
        self.wanted = 8
        cap = chance.choice((None, 4.0, 8.0))
        on_demand = 0.34 if any(not offer.spot for offer in self.offers) and least == 1 else 0.0
        self.criteria = Criteria(
            min_workers=least,
            max_workers=least + chance.randint(1, 4),
            objective=chance.choice((Objective.COST, Objective.THROUGHPUT, Objective.THROUGHPUT)),
            max_micro_usd_per_hour=None if cap is None else MicroDollars(round(cap * USD)),
            on_demand=on_demand,
            min_utilisation=chance.choice((None, 0.5)),
        )
        self.usd = {offer.kind: chance.uniform(0.3, 1.0) for offer in self.offers}
        self.idlers: set[str] = set()
        """Uids of machines that the job will not use."""
        self.slackers: set[str] = set()
        """Uids of machines on which it will compute little."""
        self.starving = False
        """Too few nodes exist to run with, so the job uses none."""
        self.criteria_now = self.criteria
        self._beat_use()

    def new_allocator(self) -> Allocator:
        demand = Demand(self.criteria_now, self.profile)
        now_s = self.clockwork.now_s
        return new_allocator(
            JOB,
            self.offers,
            wanted=self.wanted,
            at_s=now_s,
            ended=self.ended,
            settings=PLANNED,
            demand=demand,
            measured_by_s=now_s + MEASURED_S if now_s > 0 else None,
        )

    def _new_actor(self) -> Actor:
        actor = PlannedActor(self, self.new_allocator(), self.clockwork)
        self.clockwork.after(self.clockwork.chance.uniform(0.0, 1.0), lambda: self._tell_market(actor))
        return actor

    # The market

    def market(self, *, without: ClusterName | None = None) -> Market:
        offers = [offer for offer in self.offers if offer.cluster != without]
        limits: dict[MachineKind, int] = {}
        for offer in offers:
            limits[offer.kind] = limits.get(offer.kind, 0) + offer.max_nodes
        wanted = {offer for offer in offers if offer.spot or self.criteria_now.on_demand > 0}
        options = [
            Option(
                choice=offer.kind,
                gpus=1,
                micro_usd_per_hour=MicroDollars(round(self.usd[offer.kind] * USD)),
                network_bit_per_s=16e9,
                limit=limits[offer.kind],
            )
            for offer in sorted(wanted, key=lambda offer: offer.kind)
        ]
        return structs.replace(a_market(*options), quotas=self.quotas())

    def tell_quotas(self) -> None:
        self._tell_market(self.actor)

    def _tell_market(self, actor: Actor) -> None:
        actor.post(events.MarketSeen(self.clockwork.now_s, self.market()))

    def make_plan(self, actor: Actor, ask: MakePlan) -> None:
        made = plan(ask.criteria, ask.profile, ask.market, ask.current, TUNING)
        self.clockwork.tell(f"plan {ask.number} from {ask.current}: {made.change} {made.placement}, asks {made.ask}")
        late = self.clockwork.happens(0.3, "plan late")
        delay_s = self.clockwork.chance.uniform(0.5, 4.0) if late else self.clockwork.chance.uniform(0.005, 0.2)
        self.clockwork.after(delay_s, lambda: actor.post(events.Planned(self.clockwork.now_s, ask.number, made)))

    # The job

    def work(self) -> None:
        """Use every node that the job need not leave, and leave the others after a while."""
        running = self.cloud.running()
        busy = {uid: since_s for uid, since_s in self.account.busy.items() if uid in running}
        leaving = self.actor.allocator.leaving
        for uid, (pool, machine) in running.items():
            asked_to_go = machine.name in leaving.get(pool.ref.cluster, frozenset())
            if asked_to_go or self.starving or uid in self.idlers:
                busy.pop(uid, None)
            elif len(busy) < min(self.wanted, self.criteria_now.max_workers):
                busy.setdefault(uid, self.clockwork.now_s)
        self.account.busy = busy
        self.clockwork.after(0.5, self.work)

    def _beat_use(self) -> None:
        self.clockwork.after(1.0, self._beat_use)
        use = tuple(
            NodeUse(pool.ref.cluster, machine.name, 0.1 if uid in self.slackers else 0.9)
            for uid, (pool, machine) in self.cloud.running().items()
            if uid in self.account.busy
        )
        self.clockwork.after(0.001, lambda: self.actor.post(events.UseSeen(self.clockwork.now_s, use)))

    # Faults

    def faults(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            *super().faults(),
            ("prices changed", self._change_prices),
            ("prices changed", self._change_prices),
            ("criteria changed", self._change_criteria),
            ("profile measured", self._measure),
            ("node left idle", lambda: self._slacken(self.idlers)),
            ("node used too little", lambda: self._slacken(self.slackers)),
        ]

    def want(self) -> None:
        self.wanted = self.clockwork.chance.choice((0, 1, 2, 4, 8))
        self._tell_want()

    def _change_prices(self) -> None:
        for stock in self.usd:
            self.usd[stock] *= self.clockwork.chance.choice((0.4, 0.95, 1.0, 1.05, 2.5))
        self._tell_market(self.actor)

    def _change_criteria(self) -> None:
        chance = self.clockwork.chance
        fewer = chance.randint(self.criteria.min_workers, self.criteria.max_workers)
        self.criteria_now = structs.replace(self.criteria, max_workers=fewer, on_demand=0.0)
        self._tell_criteria()

    def _tell_criteria(self) -> None:
        self.actor.post(next_want(self.actor.allocator, self.clockwork.now_s, criteria=self.criteria_now))
        self._tell_market(self.actor)

    def _measure(self) -> None:
        self.profile = structs.replace(self.profile, gradient_bytes=self.clockwork.chance.choice((0, 10**6, 10**8)))
        self.actor.post(events.ProfileMeasured(self.clockwork.now_s, self.profile))

    def _slacken(self, those: set[str]) -> None:
        running = sorted(self.cloud.running())
        if running:
            those.add(self.clockwork.chance.choice(running))

    def be_kind(self) -> None:
        self.wanted = 8
        self.idlers.clear()
        self.slackers.clear()
        self.usd = {offer.kind: 0.2 + 0.1 * number for number, offer in enumerate(self.offers)}
        self.criteria_now = self.criteria
        super().be_kind()
        self._restock_all()
        if self.actor.alive:
            self._tell_criteria()

    # What must be in the end

    def is_as_wanted(self) -> bool:
        """Check that enough nodes run, and that a plan without knowledge of the allocator would keep them."""
        if not self.is_at_rest() or self.actor.allocator.market != self.market():
            return False
        held = self._running()
        return self.cloud.target == sum(held.values()) and self._would_be_kept(held)

    def must_live_without(self, cluster: ClusterName) -> None:
        """Report whether the other nodes suffice within the cap on money, with egress."""
        least = self.criteria.min_workers
        if all(offer.cluster == cluster for offer in self.offers if offer.spot):
            return
        possible = plan(self.criteria, self.profile, self.market(without=cluster), CurrentCapacity(), TUNING)
        if possible.change is not Change.WAIT:
            self.must(lambda: len(self.cloud.running()) >= least, f"{least} nodes without that region")

    def try_more(self) -> None:
        self._notice_where_the_quota_is_full()
        self._starve()

    def _notice_where_the_quota_is_full(self) -> None:
        """A request before the machine is gone would be refused."""
        self.cloud.quotas = self._all_used()
        self.clockwork.made["notice where the quota is full"] += 1
        self._tell_market(self.actor)
        for pool, machine in self._beside_others():
            self.cloud.preempt(pool, machine, 5.0)
        self.clockwork.run_until(lambda: False, self.clockwork.now_s + 6.0)
        self.must(self.is_as_wanted, "as wanted after a notice where the quota is full")
        self.cloud.quotas = {}
        self._tell_market(self.actor)
        self.must(self.is_as_wanted, "as wanted without quotas")

    def _all_used(self) -> dict[QuotaKey, int]:
        needs = {offer.kind: needs_of(offer.kind) for offer in self.offers}
        return taken(Quotas(needs=needs), self._running())

    def _beside_others(self) -> list[tuple[CloudPool, Machine]]:
        """One machine, if possible with another offer in the same region."""
        offers = {pool_ref(JOB, offer): offer for offer in self.offers}
        regions = Counter((offer.kind.region, offer.accelerator, offer.spot) for offer in self.offers)

        def others(found: tuple[CloudPool, Machine]) -> int:
            offer = offers[found[0].ref]
            return regions[offer.kind.region, offer.accelerator, offer.spot]

        return sorted(self.cloud.running().values(), key=others)[-1:]

    def _starve(self) -> None:
        """Too few machines are left until the allocator removes them; then more are available, without an event."""
        least = self.criteria_now.min_workers
        if least < 2:
            return
        self.clockwork.made["too few left for long"] += 1
        self.clockwork.tell("too few are left")
        self.starving = True
        running = list(self.cloud.running().values())
        self.cloud.capacities = dict.fromkeys(self.cloud.capacities, 0)
        for pool, _ in running[: least - 1]:
            self.cloud.capacities[pool.plan.kind.zone] += 1
        for pool, machine in running[least - 1 :]:
            self.cloud.take_at_once(pool, machine)
        self.must(lambda: not self.cloud.running(), "rid of what is idle and too few")
        self.starving = False
        self._restock_all()
        self.must(self.is_as_wanted, "as wanted though nothing is told but that machines can be had")

    def _restock_all(self) -> None:
        for zone in self.cloud.capacities:
            self.cloud.capacities[zone] = sum(offer.max_nodes for offer in self.offers if offer.zone == zone)

    def _running(self) -> dict[MachineKind, int]:
        offers = {pool_ref(JOB, offer): offer for offer in self.offers}
        found: dict[MachineKind, int] = {}
        for pool, _ in self.cloud.running().values():
            choice = offers[pool.ref].kind
            found[choice] = found.get(choice, 0) + 1
        return found

    def _would_be_kept(self, held: dict[MachineKind, int]) -> bool:
        allocator = self.actor.allocator
        criteria = structs.replace(self.criteria_now, max_workers=ceiling(allocator))
        current = CurrentCapacity(held=held)
        if breach(criteria, self.market(), current, held):
            return False
        facts = allocator.plans.facts
        stocked_out = facts.current.stocked_out if facts is not None else frozenset()
        market = facts.market if facts is not None else self.market()
        made = plan(criteria, self.profile, market, CurrentCapacity(held=held, stocked_out=stocked_out), TUNING)
        return made.change is Change.KEEP


def simulate_planned(seed: int) -> Result:
    return PlannedSystem(seed).run()


if __name__ == "__main__":
    sys.exit(replay("tests.allocator.planned_simulation", __doc__, simulate_planned))
