"""Random events: usage never exceeds capacity or quota, the bill adds up, and after the faults the pools have their
nodes under the old names."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cloud.model import invariants, spot
from simulator.cloud.model.events import Event
from simulator.cloud.model.names import NodeName, PoolKey
from simulator.cloud.model.requests import (
    CreatePool,
    DeleteInstances,
    PoolWish,
    PreemptNode,
    ResizePool,
    SetNodeReady,
    StockOut,
    UpgradePool,
)
from simulator.cloud.model.view import NodePhase
from tests.simulator_cloud.stage import CLUSTER, L4, PROJECT, REGION, ZONE, Stage, a_spec, some_rules

POOLS = [PoolKey(*CLUSTER, name) for name in ("red", "green")]
Step = Callable[[Stage], object]


class MeteredStage(Stage):
    """A stage with its own bill: for each instance, milliseconds at the price of the time."""

    spent = 0
    last_ms = 0

    def _decide(self, event: Event) -> None:
        now_ms = round(event.at_s * 1000)
        for node in self.cloud.nodes.values():
            if node.instance is not None:
                pool = self.cloud.pools[node.pool]
                self.spent += (now_ms - self.last_ms) * spot.rate_of(self.cloud, pool, node.zone)
        self.last_ms = now_ms
        super()._decide(event)
        assert invariants.over_quota(self.cloud) == []


def a_stage(seed: int) -> MeteredStage:
    stage = MeteredStage(some_rules(seed=seed, default_quota=9, silent_share=0.3))
    stage.with_cluster()
    for key in POOLS:
        stage.grant(CreatePool(CLUSTER, PoolWish(key.pool, a_spec(2))))
    stage.pass_s(60.0)
    return stage


def resize(pool: int, size: int) -> Step:
    return lambda stage: stage.ask(ResizePool(POOLS[pool], size))


def preempt(index: int, notice_s: float) -> Step:
    def step(stage: Stage) -> None:
        names = sorted(name for name, node in stage.cloud.nodes.items() if node.instance is not None)
        if names:
            stage.ask(PreemptNode(names[index % len(names)], notice_s))

    return step


def delete(pool: int, index: int) -> Step:
    def step(stage: Stage) -> None:
        nodes = stage.nodes(POOLS[pool])
        if nodes:
            group = stage.pool(POOLS[pool]).groups[0].name
            stage.ask(DeleteInstances(PROJECT, ZONE, group, (nodes[index % len(nodes)].name,)))

    return step


def come_and_go(obeys: bool) -> Step:
    def step(stage: Stage) -> None:
        stage.hosts[REGION].obeys = obeys
        stage.see() if obeys else stage.miss()

    return step


def set_ready(index: int, ready: bool) -> Step:
    def step(stage: Stage) -> None:
        names = sorted(stage.cloud.nodes)
        if names:
            stage.ask(SetNodeReady(names[index % len(names)], ready))

    return step


SECONDS = st.floats(0.0, 90.0).map(lambda seconds: round(seconds, 3))
STEPS = st.one_of(
    st.builds(resize, st.integers(0, 1), st.integers(0, 6)),
    st.builds(preempt, st.integers(0, 20), st.sampled_from([0.0, 15.0, 30.0])),
    st.builds(delete, st.integers(0, 1), st.integers(0, 5)),
    st.builds(lambda capacity: lambda stage: stage.market(capacity=capacity), st.integers(0, 12)),
    st.builds(lambda usd: lambda stage: stage.market(usd=usd), st.floats(0.1, 9.0)),
    st.builds(lambda on: lambda stage: stage.ask(StockOut(L4, on)), st.booleans()),
    st.builds(lambda pool: lambda stage: stage.ask(UpgradePool(POOLS[pool])), st.integers(0, 1)),
    st.builds(set_ready, st.integers(0, 20), st.booleans()),
    st.builds(come_and_go, st.booleans()),
    st.just(Stage.restart),
    st.builds(lambda seconds: lambda stage: stage.pass_s(seconds), SECONDS),
    st.builds(lambda seconds: lambda stage: stage.pass_s(seconds), SECONDS),
)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), steps=st.lists(STEPS, max_size=30))
def test_when_the_trouble_is_over_every_pool_has_what_it_should(seed: int, steps: list[Step]) -> None:
    stage = a_stage(seed)
    for step in steps:
        step(stage)
    come_and_go(True)(stage)
    stage.ask(StockOut(L4, on=False))
    stage.market(capacity=100)
    stage.pass_s(100.0)
    for key in POOLS:
        if stage.target(key) > 4:
            stage.ask(ResizePool(key, 4))
    stage.pass_s(2000.0)
    for key in POOLS:
        assert stage.phases(key) == ({NodePhase.RUNNING: stage.target(key)} if stage.target(key) else {})
    there = {node.name: node.instance.id for node in stage.cloud.nodes.values() if node.instance is not None}
    assert stage.hosts[REGION].nodes == there
    assert all(operation.is_done for operation in stage.cloud.operations.values())
    stage.pass_s(0.0)
    assert stage.cost() == stage.spent


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), capacities=st.lists(st.integers(0, 8), min_size=1, max_size=12))
def test_a_pool_keeps_its_names_however_often_its_nodes_are_taken(seed: int, capacities: list[int]) -> None:
    stage = Stage(some_rules(seed=seed)).with_cluster().with_pool(6)
    names = {node.name for node in stage.nodes()}
    lives: dict[NodeName, set[str]] = {name: set() for name in names}
    for capacity in [*capacities, 6]:
        stage.market(capacity=capacity)
        stage.pass_s(150.0)
        assert len(stage.running()) == min(6, capacity)
        for node in stage.running():
            assert node.instance is not None
            lives[node.name].add(node.instance.id)
    assert {node.name for node in stage.running()} == names
    assert sum(map(len, lives.values())) == len(set().union(*lives.values()))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), steps=st.lists(STEPS, max_size=15))
def test_the_same_events_make_the_same_cloud(seed: int, steps: list[Step]) -> None:
    first, second = a_stage(seed), a_stage(seed)
    for step in steps:
        step(first)
        step(second)
    assert first.cloud == second.cloud
