"""A stage for allocator stories: the test controls the cloud, the nodes and the clock."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from controlplane.allocator import events
from controlplane.allocator.decide import decide
from controlplane.allocator.effects import (
    AllocatorEffect,
    Announce,
    Change,
    CreatePool,
    DeletePool,
    ListPools,
    MakePlan,
    RemoveNodes,
    ResizePool,
)
from controlplane.allocator.invariants import check
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import Allocator, Pool, new_allocator
from controlplane.clouds.interface import ClusterInfo, PoolInfo, PoolRef, PoolStatus
from controlplane.clouds.outcomes import Done, Outcome
from controlplane.planning.criteria import Criteria
from messages.clusters import NodeObservation
from messages.ids import ClusterName, JobName
from messages.labels import JOB_LABEL

JOB = JobName("demo")
US = ClusterName("us")
EU = ClusterName("eu")
NO_IMAGE, GRANT = "image x cannot be pulled", "grant a role"
"""Why workers cannot start, and what to do."""
Kind = TypeVar("Kind")


def an_offer(zone: str, *, at_most: int = 8, cluster: ClusterName = US, machine_type: str = "n1-standard-8") -> Offer:
    return Offer(cluster, zone, machine_type, at_most, accelerator="nvidia-tesla-t4", accelerators_per_node=1)


A, B, C = an_offer("us-a"), an_offer("us-b"), an_offer("eu-c", cluster=EU)


@dataclass
class Stage:
    allocator: Allocator
    now_s: float = 100.0
    cloud: dict[PoolRef, PoolInfo] = field(default_factory=dict)
    machines: dict[PoolRef, dict[str, str]] = field(default_factory=dict)
    """Uids by name."""
    unready: set[str] = field(default_factory=set)
    were_ready: set[str] = field(default_factory=set)
    """Unready nodes that the controller has seen ready."""
    cordoned: set[str] = field(default_factory=set)
    observations: dict[ClusterName, tuple[NodeObservation, ...]] = field(default_factory=dict)
    """The last report of each cluster."""
    effects: list[AllocatorEffect] = field(default_factory=list)
    """All effects so far."""
    born: int = 0

    def happens(self, event: events.AllocatorEvent) -> list[AllocatorEffect]:
        before = self.allocator
        decision = decide(before, event)
        self.allocator = decision.state
        assert check(before, self.allocator, decision.effects) == []
        assert decision.why
        self.effects += decision.effects
        return list(decision.effects)

    def pool(self, offer: Offer) -> Pool:
        return self.allocator.pools[pool_ref(JOB, offer)]

    # Events

    def ticks(self, after_s: float = 0.0) -> list[AllocatorEffect]:
        self.now_s += after_s
        return self.happens(events.Ticked(self.now_s))

    def lists(self) -> list[AllocatorEffect]:
        """The cloud answers the last requested listing."""
        return self.happens(events.PoolsListed(self.now_s, self.allocator.listing.number, self.clusters()))

    def begins(self) -> CreatePool:
        """The first listing comes, and one pool is requested."""
        self.ticks()
        [create] = of(self.lists(), CreatePool)
        return create

    def clusters(self) -> tuple[ClusterInfo, ...]:
        names = {offer.cluster for offer in self.allocator.offers}
        return tuple(
            ClusterInfo(name, f"{name}-1", True, {}, tuple(i for r, i in self.cloud.items() if r.cluster == name))
            for name in sorted(names)
        )

    def sees(self, cluster: ClusterName = US, noticed: Mapping[str, float] | None = None) -> list[AllocatorEffect]:
        """`noticed`: nodes with a notice, and the seconds that it leaves them."""
        observations = tuple(
            NodeObservation(
                node=name,
                uid=uid,
                pool=ref.pool,
                job=JOB,
                ready=name not in self.unready,
                was_ready=name in self.unready & self.were_ready,
                notice_s=60.0 if name in self.cordoned else (noticed or {}).get(name),
                cordoned=name in self.cordoned,
            )
            for ref, nodes in self.machines.items()
            if ref.cluster == cluster
            for name, uid in sorted(nodes.items())
        )
        self.observations[cluster] = observations
        return self.happens(events.NodesSeen(self.now_s, cluster, observations))

    def ends(self, effect: Change, outcome: Outcome | None = None) -> list[AllocatorEffect]:
        """End an operation: with success unless an outcome is given."""
        if outcome is None or isinstance(outcome, Done):
            self.does(effect)
        return self.happens(events.OperationEnded(self.now_s, effect.ref, effect.operation, outcome or Done()))

    def wants(self, count: int) -> list[AllocatorEffect]:
        return self.happens(next_want(self.allocator, self.now_s, nodes=count))

    def job_ends(self, why: str = "succeeded") -> list[AllocatorEffect]:
        return self.happens(next_want(self.allocator, self.now_s, ended=why))

    def asks_for(self, criteria: Criteria) -> list[AllocatorEffect]:
        return self.happens(next_want(self.allocator, self.now_s, criteria=criteria))

    def loses_cluster(self, cluster: ClusterName) -> list[AllocatorEffect]:
        """The cluster and all its workers are silent."""
        return self.happens(next_want(self.allocator, self.now_s, lost=frozenset({cluster})))

    def notices(self, node: str, remaining_s: float = 15.0) -> list[AllocatorEffect]:
        return self.sees(self._holder(node).cluster, {node: remaining_s})

    def loses(self, node: str) -> list[AllocatorEffect]:
        """The node's notice is over; it is still reported."""
        return self.notices(node, 0.0)

    def releases(self, *nodes: str, cluster: ClusterName = US) -> list[AllocatorEffect]:
        """The job no longer uses these nodes; otherwise the cluster is as last reported."""
        return self.happens(events.NodesSeen(self.now_s, cluster, self.observations.get(cluster, ()), nodes))

    def cannot_start(
        self, *nodes: str, for_s: float = 20.0, cluster: ClusterName = US, started: Collection[str] = ()
    ) -> list[AllocatorEffect]:
        """Workers on these nodes cannot start, and have started on others."""
        failing = tuple((node, for_s) for node in nodes)
        detail, hint = (NO_IMAGE, GRANT) if nodes else ("", "")
        return self.happens(events.StartsSeen(self.now_s, cluster, failing, frozenset(started), detail, hint))

    # Acts of the cloud

    def does(self, effect: Change) -> None:
        match effect:
            case CreatePool(_, _, plan, _):
                labels = {JOB_LABEL: JOB}
                self.cloud[effect.ref] = PoolInfo(
                    effect.ref,
                    plan.kind,
                    plan.size,
                    PoolStatus.RUNNING,
                    labels,
                )
            case ResizePool(_, ref, size, _):
                self.cloud[ref] = replace(self.cloud[ref], size=size)
            case RemoveNodes(_, ref, nodes, _):
                self.cloud[ref] = replace(self.cloud[ref], size=self.cloud[ref].size - len(nodes))
                for name in nodes:
                    self.machines[ref].pop(name, None)
            case DeletePool(_, ref, _):
                self.cloud.pop(ref, None)
                self.machines.pop(ref, None)

    def fills(self, offer: Offer) -> None:
        """Every slot of the pool gets a node, lost ones under their old names."""
        ref = pool_ref(JOB, offer)
        nodes = self.machines.setdefault(ref, {})
        for number in range(1, self.cloud[ref].size + 1):
            name = f"{offer.zone}-{number}"
            if name not in nodes and len(nodes) < self.cloud[ref].size:
                self.born += 1
                nodes[name] = f"uid-{self.born}"

    def renews(self, node: str) -> None:
        """Another machine under the same name."""
        self.born += 1
        self.machines[self._holder(node)][node] = f"uid-{self.born}"

    def updates(self, offer: Offer, *, surge: int = 0) -> None:
        """The cloud upgrades or repairs nodes of a pool."""
        ref = pool_ref(JOB, offer)
        self.cloud[ref] = replace(self.cloud[ref], status=PoolStatus.UPDATING, size=self.cloud[ref].size + surge)

    def is_done(self, offer: Offer, *, surge: int = 0) -> None:
        ref = pool_ref(JOB, offer)
        self.cloud[ref] = replace(self.cloud[ref], status=PoolStatus.RUNNING, size=self.cloud[ref].size - surge)

    def takes(self, *nodes: str) -> None:
        for node in nodes:
            del self.machines[self._holder(node)][node]

    def _holder(self, node: str) -> PoolRef:
        return next(ref for ref, nodes in self.machines.items() if node in nodes)


def next_want(
    allocator: Allocator,
    at_s: float,
    *,
    nodes: int | None = None,
    ended: str | None = None,
    criteria: Criteria | None = None,
    lost: frozenset[ClusterName] = frozenset(),
) -> events.NodesWanted:
    """The want after the newest one; values that are not given stay."""
    wanted = allocator.wanted if nodes is None else nodes
    return events.NodesWanted(at_s, allocator.want + 1, wanted, ended, criteria, lost)


def a_stage(*offers: Offer, wanted: int = 3, settings: AllocatorSettings | None = None) -> Stage:
    """A stage before the first listing."""
    made = new_allocator(JOB, offers or (A, B, C), wanted=wanted, at_s=100.0, settings=settings)
    return Stage(made)


def a_full_stage(*offers: Offer, wanted: int = 3, settings: AllocatorSettings | None = None) -> Stage:
    """A stage with all wanted nodes in the pool of the first offer."""
    stage = a_stage(*offers, wanted=wanted, settings=settings)
    stage.ends(stage.begins())
    stage.fills(stage.allocator.offers[0])
    stage.sees(stage.allocator.offers[0].cluster)
    assert held_by(stage) == {stage.allocator.offers[0].zone: wanted}
    return stage


def of(effects: list[AllocatorEffect], kind: type[Kind]) -> list[Kind]:
    return [effect for effect in effects if isinstance(effect, kind)]


def asked(effects: list[AllocatorEffect], offers: Sequence[Offer] = (A, B, C)) -> list[tuple[str, ...]]:
    """Requested changes and listings, as tuples of words."""
    zones = {pool_ref(JOB, offer): offer.zone for offer in offers}
    words: list[tuple[str, ...]] = []
    for effect in effects:
        match effect:
            case CreatePool(_, _, plan, _):
                words.append(("create", plan.kind.zone, str(plan.size)))
            case ResizePool(_, ref, size, _):
                words.append(("resize", zones.get(ref, ref.pool), str(size)))
            case RemoveNodes(_, ref, nodes, _):
                words.append(("remove", zones.get(ref, ref.pool), *nodes))
            case DeletePool(_, ref, _):
                words.append(("delete", zones.get(ref, ref.pool)))
            case ListPools():
                words.append(("list",))
            case MakePlan() | Announce():
                pass
    return words


def held_by(stage: Stage) -> dict[str, int]:
    counted = {
        pool.offer.zone: sum(node.counts for node in pool.nodes.values()) for pool in stage.allocator.pools.values()
    }
    return {zone: count for zone, count in counted.items() if count}
