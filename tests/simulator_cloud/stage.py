"""The cloud's core with a manual clock and regions that carry out requests by default."""

from collections import Counter
from dataclasses import dataclass, field, replace

from simulator.cloud.model import bill, invariants, view
from simulator.cloud.model.decide import decide
from simulator.cloud.model.effects import (
    AnnounceMaintenance,
    Answer,
    DrainNode,
    DropCluster,
    Effect,
    HostCluster,
    PlaceNode,
    RegionRequest,
    RemoveNode,
    SilenceNode,
    TellRegion,
    WarnNode,
)
from simulator.cloud.model.events import (
    Asked,
    Event,
    MarketMoved,
    RegionFailed,
    RegionMissed,
    RegionObeyed,
    RegionSeen,
    Tick,
)
from simulator.cloud.model.machines import machine
from simulator.cloud.model.names import ClusterKey, NodeName, PoolKey
from simulator.cloud.model.refusals import Refusal
from simulator.cloud.model.requests import (
    CreateCluster,
    CreatePool,
    DeleteCluster,
    DeletePool,
    Outcome,
    PoolWish,
    PreemptNode,
    Request,
    ResizePool,
    Started,
)
from simulator.cloud.model.state import Cloud, Node, Operation, Pool, PoolSpec, Rules
from simulator.cloud.model.view import NodePhase, Status
from simulator.market.markets import Change, Market, micro_usd

PROJECT = "acme"
REGION = "us-central1"
ZONE = "us-central1-a"
L4 = Market(ZONE, "nvidia-l4")
CLUSTER = ClusterKey(PROJECT, REGION, "tw")
POOL = PoolKey(*CLUSTER, "gpus")


def some_rules(
    seed: int = 7,
    recreate_s: float = 5.0,
    retry_s: float = 30.0,
    silent_share: float = 0.0,
    default_quota: int = 64,
) -> Rules:
    return Rules(
        seed=seed,
        regions=(REGION, "europe-west4"),
        operation_s=10.0,
        cluster_s=100.0,
        boot_s=40.0,
        recreate_s=recreate_s,
        retry_s=retry_s,
        stockout_s=60.0,
        give_up_s=600.0,
        forget_s=10.0,
        silent_share=silent_share,
        default_quota=default_quota,
    )


def a_spec(size: int = 2, spot: bool = True, zone: str = ZONE, machine_type: str = "g2-standard-8") -> PoolSpec:
    """Private nodes with small disks; the default quotas allow a dozen of them."""
    host = machine(machine_type)
    assert host is not None
    return PoolSpec(
        machine=host,
        accelerator=host.accelerator,
        accelerators=host.accelerators,
        spot=spot,
        zones=(zone,),
        size=size,
        labels={"job": "mnist"},
        disk_gb=10,
        private=True,
    )


def a_system_pool(size: int = 1) -> PoolWish:
    return PoolWish("system", replace(a_spec(size, spot=False, machine_type="e2-standard-2"), labels={}))


@dataclass
class Host:
    """A region as the cloud sees it: its requests in order."""

    clusters: dict[str, str] = field(default_factory=dict)
    nodes: dict[NodeName, str] = field(default_factory=dict)
    heard: list[RegionRequest] = field(default_factory=list)
    incarnation: str = "first"
    obeys: bool = True
    holds_pods: bool = False
    """Pods do not leave nodes that are drained."""


class Stage:
    def __init__(self, rules: Rules | None = None) -> None:
        self.cloud = Cloud(rules=rules or some_rules())
        self.now_s = 1000.0
        self.wake_at_s: float | None = None
        self.hosts = {name: Host() for name in self.cloud.rules.regions}
        self.answers: dict[int, Outcome] = {}
        self.unanswered: list[TellRegion] = []
        self._asked = 0
        for name in self.hosts:
            self.see(name)

    # what happens

    def ask(self, request: Request) -> Outcome:
        self._asked += 1
        self.happen(Asked(self.now_s, self._asked, request))
        return self.answers.pop(self._asked)

    def grant(self, request: Request) -> Operation:
        outcome = self.ask(request)
        assert isinstance(outcome, Started), outcome
        return self.cloud.operations[outcome.operation]

    def refuse(self, request: Request) -> Refusal:
        before = self.cloud.clusters, self.cloud.pools, self.cloud.operations
        outcome = self.ask(request)
        assert isinstance(outcome, Refusal), outcome
        assert before == (self.cloud.clusters, self.cloud.pools, self.cloud.operations)
        return outcome

    def market(self, capacity: int | None = None, usd: float | None = None, market: Market = L4) -> None:
        price = None if usd is None else micro_usd(usd)
        self.happen(MarketMoved(self.now_s, Change(self.now_s, market, capacity, price)))

    def see(self, region: str = REGION) -> None:
        host = self.hosts[region]
        self.happen(RegionSeen(self.now_s, region, host.incarnation, tuple(host.clusters)))

    def miss(self, region: str = REGION) -> None:
        self.hosts[region].obeys = False
        self.happen(RegionMissed(self.now_s, region, "no answer"))

    def restart(self, region: str = REGION) -> None:
        self.hosts[region] = Host(incarnation=f"after {self.hosts[region].incarnation}")
        self.see(region)

    def pass_s(self, seconds: float) -> None:
        """Passes time, with a tick whenever the core wants to wake."""
        until_s = self.now_s + seconds
        while self.wake_at_s is not None and self.wake_at_s <= until_s:
            self.now_s = max(self.now_s, self.wake_at_s)
            self.happen(Tick(self.now_s))
        self.now_s = until_s
        self.happen(Tick(self.now_s))

    def happen(self, event: Event) -> None:
        self._decide(event)
        while self.unanswered:
            self._decide(self._answer(self.unanswered.pop(0)))

    def _decide(self, event: Event) -> None:
        decision = decide(self.cloud, event)
        self.cloud = decision.state
        self.wake_at_s = decision.wake_at_s
        assert invariants.broken(self.cloud) == []
        for effect in decision.effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Answer):
            self.answers[effect.number] = effect.outcome
        else:
            self.unanswered.append(effect)

    def _answer(self, reported: TellRegion) -> Event:
        request = reported.request
        host = self.hosts[request.region]
        if not host.obeys:
            return RegionFailed(self.now_s, reported.number, request, "no answer")
        host.heard.append(request)
        match request:
            case HostCluster():
                host.clusters[request.name_in_region] = request.uid
            case DropCluster():
                host.clusters.pop(request.name_in_region, None)
                host.nodes.clear()
            case PlaceNode():
                assert request.name_in_region in host.clusters, "a node in a cluster that is not there"
                assert request.node not in host.nodes, "a second life before the end of the first"
                host.nodes[request.node] = request.instance
            case WarnNode():
                assert request.node in host.nodes, "a notice to a node that is not there"
            case DrainNode() | SilenceNode() | AnnounceMaintenance():
                assert request.node in host.nodes, "an order to a node that is not there"
            case RemoveNode():
                host.nodes.pop(request.node, None)
        endpoint = f"http://host/k8s/{request.name_in_region}" if isinstance(request, HostCluster) else ""
        return RegionObeyed(self.now_s, reported.number, request, endpoint, drained=not host.holds_pods)

    # what there is

    def operation(self, operation: Operation) -> Operation:
        return self.cloud.operations[operation.name]

    def pool(self, key: PoolKey = POOL) -> Pool:
        return self.cloud.pools[key]

    def target(self, key: PoolKey = POOL) -> int:
        return self.pool(key).groups[0].target

    def status(self, key: PoolKey = POOL) -> Status:
        return view.pool_status(self.cloud, self.pool(key))

    def nodes(self, key: PoolKey = POOL) -> list[Node]:
        return view.nodes_of(self.cloud, key)

    def phases(self, key: PoolKey = POOL) -> Counter[NodePhase]:
        return Counter(view.phase(self.cloud, node) for node in self.nodes(key))

    def running(self, key: PoolKey = POOL) -> list[Node]:
        return [node for node in self.nodes(key) if view.is_running(self.cloud, node)]

    def heard(self, kind: type[RegionRequest], region: str = REGION) -> list[RegionRequest]:
        return [request for request in self.hosts[region].heard if isinstance(request, kind)]

    def cost(self) -> int:
        return sum(bill.settled(line, self.now_s).cost for line in self.cloud.lines.values())

    def node_ms(self) -> int:
        return sum(bill.settled(line, self.now_s).node_ms for line in self.cloud.lines.values())

    # what most stories begin with

    def with_cluster(self) -> "Stage":
        self.grant(CreateCluster(CLUSTER, (a_system_pool(),), zones=(ZONE,)))
        self.pass_s(200.0)
        return self

    def with_pool(self, size: int = 2, spot: bool = True, name: str = POOL.pool) -> "Stage":
        self.grant(CreatePool(CLUSTER, PoolWish(name, a_spec(size, spot))))
        self.pass_s(60.0)
        return self

    def resize(self, size: int, key: PoolKey = POOL) -> Operation:
        return self.grant(ResizePool(key, size))

    def preempt(self, node: Node, notice_s: float | None = None) -> None:
        outcome = self.ask(PreemptNode(node.name, notice_s))
        assert not isinstance(outcome, Refusal), outcome

    def delete_pool(self, key: PoolKey = POOL) -> Operation:
        return self.grant(DeletePool(key))

    def delete_cluster(self) -> Operation:
        return self.grant(DeleteCluster(CLUSTER))
