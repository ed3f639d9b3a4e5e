"""The spot market: nodes are preempted with and without notice, and come back under the same name."""

from dataclasses import replace

import pytest

from simulator.cloud.model.effects import PlaceNode, RemoveNode, WarnNode
from simulator.cloud.model.events import MarketMoved
from simulator.cloud.model.names import NodeName, PoolKey
from simulator.cloud.model.refusals import Refusal
from simulator.cloud.model.requests import CreatePool, DeleteInstances, PoolWish, PreemptNode, SetCapacity, SetPrice
from simulator.cloud.model.state import Rules
from simulator.cloud.model.view import NodePhase, Status
from simulator.market.markets import Change, Lifetimes, micro_usd
from tests.simulator_cloud.stage import CLUSTER, L4, PROJECT, REGION, ZONE, Stage, a_spec, some_rules


def warnings(stage: Stage) -> list[tuple[NodeName, float]]:
    return [(each.node, each.notice_s) for each in stage.heard(WarnNode) if isinstance(each, WarnNode)]


def test_a_preempted_node_is_warned_ends_and_comes_back_under_the_same_name() -> None:
    stage = Stage().with_cluster().with_pool(2)
    victim = stage.nodes()[0]
    assert victim.instance is not None
    stage.preempt(victim)
    assert warnings(stage) == [(victim.name, 30.0)]
    assert stage.phases() == {NodePhase.NOTICED: 1, NodePhase.RUNNING: 1}
    stage.pass_s(30.0)
    assert stage.phases() == {NodePhase.WAITING: 1, NodePhase.RUNNING: 1}
    stage.pass_s(5.0 + 40.0)
    again = next(node for node in stage.running() if node.name == victim.name)
    assert again.instance is not None
    assert again.instance.id != victim.instance.id
    assert stage.target() == 2


def test_a_node_lost_without_a_word_is_gone_at_once() -> None:
    stage = Stage().with_cluster().with_pool(1)
    stage.preempt(stage.nodes()[0], notice_s=0.0)
    assert warnings(stage) == [(stage.nodes()[0].name, 0.0)]
    assert stage.phases() == {NodePhase.WAITING: 1}


def test_kubernetes_forgets_a_node_that_does_not_come_back() -> None:
    stage = Stage().with_cluster().with_pool(1)
    stage.ask(SetCapacity(L4, 0))
    name = stage.nodes()[0].name
    stage.pass_s(39.0)
    assert name in stage.hosts[REGION].nodes
    stage.pass_s(2.0)
    assert name not in stage.hosts[REGION].nodes
    stage.pass_s(200.0)
    assert stage.phases() == {NodePhase.WAITING: 1}


def test_when_a_zone_runs_short_as_many_nodes_are_taken_as_are_too_many() -> None:
    stage = Stage().with_cluster().with_pool(6)
    stage.market(capacity=4)
    assert stage.phases() == {NodePhase.NOTICED: 2, NodePhase.RUNNING: 4}
    stage.market(capacity=4)
    assert len(warnings(stage)) == 2, "the doomed are not taken twice"
    stage.pass_s(120.0)
    assert stage.phases() == {NodePhase.WAITING: 2, NodePhase.RUNNING: 4}
    assert stage.status() is Status.RUNNING_WITH_ERROR
    stage.market(capacity=6)
    stage.pass_s(80.0)
    assert len(stage.running()) == 6


def test_on_demand_nodes_are_not_the_markets_to_take() -> None:
    stage = Stage().with_cluster().with_pool(3, spot=False)
    stage.market(capacity=0)
    stage.pass_s(60.0)
    assert len(stage.running()) == 3


def test_a_change_can_say_what_notice_it_gives() -> None:
    stage = Stage().with_cluster().with_pool(2)
    stage.happen(MarketMoved(stage.now_s, Change(stage.now_s, L4, capacity=1, notice_s=2.0)))
    assert [notice_s for _, notice_s in warnings(stage)] == [2.0]


def test_some_of_the_markets_victims_get_no_word() -> None:
    stage = Stage(some_rules(silent_share=0.5)).with_cluster().with_pool(11)
    stage.market(capacity=0)
    silent = [notice_s for _, notice_s in warnings(stage)].count(0.0)
    assert 0 < silent < 11


def test_the_same_seed_takes_the_same_nodes() -> None:
    def taken(seed: int) -> list[NodeName]:
        stage = Stage(some_rules(seed=seed)).with_cluster().with_pool(8)
        stage.market(capacity=3)
        return [name for name, _ in warnings(stage)]

    assert taken(3) == taken(3)
    assert len(taken(3)) == 5


def test_an_instance_that_no_region_knows_yet_ends_without_a_word() -> None:
    stage = Stage().with_cluster().with_pool(1)
    stage.resize(2)
    booting = next(node for node in stage.nodes() if node not in stage.running())
    stage.preempt(booting)
    assert warnings(stage) == []
    stage.pass_s(60.0)
    assert len(stage.running()) == 2


def test_nodes_with_a_longer_grace_are_told_earlier() -> None:
    stage = Stage().with_cluster()
    stage.grant(CreatePool(CLUSTER, PoolWish("patient", replace(a_spec(1, True), shutdown_grace_s=120.0))))
    stage.pass_s(60.0)
    stage.preempt(stage.nodes(PoolKey(*CLUSTER, "patient"))[0])
    assert [notice_s for _, notice_s in warnings(stage)] == [120.0]


def test_a_shorter_notice_goes_before_a_longer_one() -> None:
    stage = Stage().with_cluster().with_pool(1)
    node = stage.nodes()[0]
    stage.preempt(node, notice_s=30.0)
    stage.preempt(stage.nodes()[0], notice_s=60.0)
    stage.preempt(stage.nodes()[0], notice_s=1.0)
    assert [notice_s for _, notice_s in warnings(stage)] == [30.0, 1.0]
    stage.pass_s(1.0)
    assert stage.phases() == {NodePhase.WAITING: 1}


def test_a_doomed_node_that_is_let_go_keeps_the_rest_of_its_notice() -> None:
    stage = Stage().with_cluster().with_pool(2)
    victim = stage.nodes()[0]
    stage.preempt(victim)
    group = stage.pool().groups[0].name
    deleted = stage.grant(DeleteInstances(PROJECT, ZONE, group, (victim.name,)))
    stage.pass_s(29.0)
    assert victim.name in stage.hosts[REGION].nodes
    assert not stage.operation(deleted).is_done
    stage.pass_s(2.0)
    assert victim.name not in stage.hosts[REGION].nodes
    assert stage.operation(deleted).is_done
    stage.pass_s(200.0)
    assert len(stage.nodes()) == 1


def test_lowering_the_target_to_what_is_left_lets_go_of_the_doomed() -> None:
    stage = Stage().with_cluster().with_pool(3)
    victim = stage.nodes()[1]
    stage.preempt(victim)
    stage.resize(2)
    stage.pass_s(100.0)
    assert victim.name not in {node.name for node in stage.nodes()}
    assert len(stage.running()) == 2
    assert len(stage.heard(PlaceNode)) == 1 + 3


def test_a_node_without_an_instance_cannot_be_preempted() -> None:
    stage = Stage().with_cluster().with_pool(1)
    name = stage.nodes()[0].name
    stage.preempt(stage.nodes()[0], notice_s=0.0)
    assert isinstance(stage.ask(PreemptNode(name)), Refusal)
    assert isinstance(stage.ask(PreemptNode(NodeName("nobody"))), Refusal)


def test_lifetimes_take_nodes_when_nothing_else_does() -> None:
    rules = Rules(
        seed=1, regions=(REGION,), boot_s=1.0, cluster_s=1.0, recreate_s=1.0, lifetimes=Lifetimes(100.0, cap_s=300.0)
    )
    stage = Stage(rules).with_cluster().with_pool(10)
    stage.pass_s(400.0)
    assert len({name for name, _ in warnings(stage)}) == 10, "no instance outlives the cap"
    assert len(stage.nodes()) == 10


def test_a_price_by_hand_goes_before_the_traces() -> None:
    stage = Stage().with_cluster().with_pool(1)
    stage.pass_s(3600.0)
    stage.market(usd=1.0)
    before = stage.cost()
    stage.pass_s(3600.0)
    assert (stage.cost() - before) / 3_600_000 == pytest.approx(micro_usd(1.0) + 67_000), "with the system node"
    stage.ask(SetPrice(L4, micro_usd(5.0)))
    stage.market(usd=2.0)
    before = stage.cost()
    stage.pass_s(3600.0)
    assert (stage.cost() - before) / 3_600_000 == pytest.approx(micro_usd(5.0) + 67_000)
    stage.ask(SetPrice(L4, None))
    before = stage.cost()
    stage.pass_s(3600.0)
    assert (stage.cost() - before) / 3_600_000 == pytest.approx(micro_usd(2.0) + 67_000)


def test_nothing_is_billed_while_a_node_has_no_instance() -> None:
    stage = Stage().with_cluster().with_pool(1)
    stage.ask(SetCapacity(L4, 0))
    stage.pass_s(30.0)
    before = stage.node_ms()
    stage.pass_s(100.0)
    assert stage.node_ms() - before == 100_000, "only the system node"
    assert not stage.heard(RemoveNode, "europe-west4")
