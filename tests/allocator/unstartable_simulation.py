"""Clusters in which no worker can start, by seed: others provide what they can, and unusable nodes cost little."""

from dataclasses import replace

from controlplane.allocator import events
from controlplane.allocator.state import Allocator
from messages.ids import ClusterName
from tests.allocator.simulated_cloud import CloudPool
from tests.allocator.simulation import CLUSTERS, SETTINGS, Result, System
from tests.simulation.clockwork import Broken

STARTS = replace(SETTINGS, start_give_back_s=6.0, start_retry_s=20.0, start_retry_max_s=80.0)
NO_STARTS = "cluster in which no worker can start"
"""The name of the fault."""
START_S = 1.5
"""Seconds from the first report of a machine until its worker has started or is known to fail."""
SETTLE_S = 150.0
WATCHED_S = 200.0
PAID_S = 12.0
"""Node-seconds at most for each try of an offer: the wait for a repair, and the removal."""
TRIES = WATCHED_S / STARTS.start_retry_max_s + 2


class UnstartableSystem(System):
    bad: set[ClusterName]
    up_s: dict[str, float]
    """When each machine was first seen running, by uid."""
    paid_s: float = 0.0
    """Node-seconds in bad clusters."""

    def prepare(self) -> None:
        self.up_s = {}
        self.bad = {name for name in CLUSTERS if self.clockwork.chance.random() < 0.6}
        self.early_end = False

    def new_allocator(self) -> Allocator:
        return replace(super().new_allocator(), settings=STARTS)

    def _go(self) -> None:
        clockwork = self.clockwork
        for cluster in CLUSTERS:
            self._beat(cluster)
        self.work()
        self._plan_faults()
        clockwork.run_until(lambda: False, clockwork.faults.until_s)
        clockwork.now_s = clockwork.faults.until_s
        self.be_kind()
        clockwork.run_until(lambda: False, clockwork.now_s + SETTLE_S)
        self.paid_s = 0.0
        clockwork.run_until(lambda: False, clockwork.now_s + WATCHED_S)
        self._check_what_was_paid()
        clockwork.made[NO_STARTS] += len(self.bad)
        self.bad.clear()
        clockwork.tell("workers can start everywhere")
        self.must(self.is_as_wanted, "as wanted when workers can start again")

    def _check_what_was_paid(self) -> None:
        good = sum(offer.max_nodes for offer in self.offers if offer.cluster not in self.bad)
        useful = sum(self._starts(pool) for pool, _ in self.cloud.running().values())
        if useful < min(self.wanted, good):
            raise Broken(f"{useful} nodes can be used, {min(self.wanted, good)} could be had")
        tried = sum(offer.cluster in self.bad for offer in self.offers)
        if self.paid_s > tried * TRIES * PAID_S:
            raise Broken(f"{self.paid_s:.0f} node-seconds were paid where no worker can start, of {tried} offers")

    def work(self) -> None:
        """The job uses machines on which its workers start."""
        now_s, running = self.clockwork.now_s, self.cloud.running()
        self.up_s = {uid: self.up_s.get(uid, now_s) for uid in running}
        usable = {uid for uid, (pool, _) in running.items() if self._starts(pool)}
        self.paid_s += 0.5 * (len(running) - len(usable))
        self.account.busy = {uid: since_s for uid, since_s in self.account.busy.items() if uid in usable}
        for uid in sorted(self.account.busy)[self.wanted :]:
            del self.account.busy[uid]
        for uid in sorted(usable - self.account.busy.keys())[: self.wanted - len(self.account.busy)]:
            self.account.busy[uid] = now_s
        self.clockwork.after(0.5, self.work)

    def idle(self, cluster: ClusterName) -> tuple[str, ...]:
        """Free nodes, as a master reports them: none while some workers have not started."""
        return () if self._failing(cluster) else super().idle(cluster)

    def _beat(self, cluster: ClusterName) -> None:
        super()._beat(cluster)
        self._send_starts(cluster)

    def _send_starts(self, cluster: ClusterName) -> None:
        now_s, failing = self.clockwork.now_s, self._failing(cluster)
        started = frozenset(
            machine.name
            for uid, (pool, machine) in self.cloud.running().items()
            if pool.ref.cluster == cluster and self._starts(pool) and self._age_s(uid) >= START_S
        )
        if self.actor.alive and (failing or cluster in self.actor.allocator.blocks) and cluster not in self.cut_off:
            event = events.StartsSeen(now_s, cluster, failing, started, "no image" if failing else "")
            self.clockwork.after(0.001, lambda: self.actor.post(event))

    def _failing(self, cluster: ClusterName) -> tuple[tuple[str, float], ...]:
        return tuple(
            (machine.name, self._age_s(uid) - START_S)
            for uid, (pool, machine) in self.cloud.running().items()
            if pool.ref.cluster == cluster and not self._starts(pool) and self._age_s(uid) >= START_S
        )

    def _starts(self, pool: CloudPool) -> bool:
        return pool.ref.cluster not in self.bad

    def _age_s(self, uid: str) -> float:
        return self.clockwork.now_s - self.up_s.get(uid, self.clockwork.now_s)


def simulate_unstartable(seed: int) -> Result:
    return UnstartableSystem(seed).run()
