"""GKE's own changes to nodes: upgrades with and without a surge, exclusions, repairs."""

from dataclasses import replace

from simulator.cloud.model.effects import AnnounceMaintenance, DrainNode, SilenceNode, WarnNode
from simulator.cloud.model.refusals import Code, Refusal
from simulator.cloud.model.requests import (
    CreatePool,
    MaintainHost,
    PoolWish,
    ResizePool,
    SetExclusions,
    SetNodeReady,
    UpgradePool,
)
from simulator.cloud.model.state import Exclusion, Kind, Operation, Scope
from simulator.cloud.model.view import Status
from tests.simulator_cloud.stage import CLUSTER, POOL, REGION, Stage, a_spec, some_rules

DAY_S = 86_400.0


def with_pool(stage: Stage, size: int = 2, max_surge: int = 1, max_unavailable: int = 0) -> Stage:
    spec = replace(a_spec(size), max_surge=max_surge, max_unavailable=max_unavailable)
    stage.grant(CreatePool(CLUSTER, PoolWish(POOL.pool, spec)))
    stage.pass_s(60.0)
    return stage


def instances(stage: Stage) -> dict[str, str]:
    return {node.name: node.instance.id for node in stage.nodes() if node.instance is not None}


def operation_of(stage: Stage, kind: Kind) -> Operation:
    return [each for each in stage.cloud.operations.values() if each.kind is kind][-1]


def order(stage: Stage, request: UpgradePool | SetNodeReady | MaintainHost) -> None:
    outcome = stage.ask(request)
    assert not isinstance(outcome, Refusal), outcome


def test_an_upgrade_without_surge_recreates_one_node_after_the_other_under_its_name() -> None:
    stage = with_pool(Stage().with_cluster(), max_surge=0, max_unavailable=1)
    before = instances(stage)
    order(stage, UpgradePool(POOL))
    assert (stage.status(), stage.target()) == (Status.RECONCILING, 2)
    stage.pass_s(20.0)
    first = instances(stage)
    assert len(first.items() & before.items()) == 1, "the other waits for its turn"
    stage.pass_s(120.0)
    after = instances(stage)
    assert after.keys() == before.keys() and not after.items() & before.items()
    assert operation_of(stage, Kind.UPGRADE_NODES).is_done and stage.status() is Status.RUNNING
    assert [type(each) for each in stage.heard(DrainNode)] == [DrainNode, DrainNode]


def test_a_surge_node_comes_first_and_goes_last_and_the_groups_target_is_larger_meanwhile() -> None:
    stage = with_pool(Stage().with_cluster())
    before = instances(stage)
    order(stage, UpgradePool(POOL))
    assert stage.target() == 3 and len(stage.nodes()) == 3
    stage.pass_s(30.0)
    assert instances(stage).items() >= before.items() and not stage.heard(DrainNode), "nothing goes before it is there"
    stage.pass_s(200.0)
    assert stage.target() == 2 and instances(stage).keys() == before.keys()
    assert not instances(stage).items() & before.items()
    assert operation_of(stage, Kind.UPGRADE_NODES).is_done


def test_other_operations_on_the_pool_wait_for_the_upgrade() -> None:
    stage = with_pool(Stage().with_cluster())
    order(stage, UpgradePool(POOL))
    assert stage.refuse(ResizePool(POOL, 3)).code is Code.FAILED_PRECONDITION


def test_pods_that_do_not_leave_hold_the_node_until_the_drain_is_given_up() -> None:
    stage = with_pool(Stage(replace(some_rules(), drain_s=300.0)).with_cluster(), max_surge=0, max_unavailable=1)
    before = instances(stage)
    stage.hosts[REGION].holds_pods = True
    order(stage, UpgradePool(POOL))
    stage.pass_s(290.0)
    assert instances(stage) == before
    stage.pass_s(20.0)
    assert instances(stage) != before


def test_pools_are_upgraded_by_themselves_unless_an_exclusion_covers_the_moment() -> None:
    rules = replace(some_rules(), upgrade_every_s=10 * DAY_S)
    stage = with_pool(Stage(rules).with_cluster(), max_surge=0, max_unavailable=1)
    before = instances(stage)
    until_s = stage.now_s + 30 * DAY_S
    exclusion = Exclusion(Scope.NO_MINOR_OR_NODE_UPGRADES, stage.now_s, until_s)
    stage.grant(SetExclusions(CLUSTER, (exclusion,), b""))
    stage.pass_s(20 * DAY_S)
    assert instances(stage) == before
    assert "exclusion" in stage.refuse(UpgradePool(POOL)).message
    stage.pass_s(11 * DAY_S)
    assert instances(stage).keys() == before.keys() and not instances(stage).items() & before.items()


def test_an_exclusion_of_minor_upgrades_alone_keeps_no_node() -> None:
    stage = with_pool(Stage().with_cluster())
    stage.grant(SetExclusions(CLUSTER, (Exclusion(Scope.NO_MINOR_UPGRADES, stage.now_s, stage.now_s + DAY_S),), b""))
    stage.pass_s(30.0)
    order(stage, UpgradePool(POOL))
    assert stage.status() is Status.RECONCILING


def test_a_forced_upgrade_comes_during_an_exclusion_too() -> None:
    stage = with_pool(Stage().with_cluster())
    stage.grant(SetExclusions(CLUSTER, (Exclusion(Scope.NO_UPGRADES, stage.now_s, stage.now_s + DAY_S),), b""))
    stage.pass_s(30.0)
    order(stage, UpgradePool(POOL, forced=True))
    assert stage.status() is Status.RECONCILING


def test_a_node_that_is_not_ready_is_repaired_after_ten_minutes_under_its_name() -> None:
    stage = with_pool(Stage().with_cluster())
    before = instances(stage)
    node = stage.nodes()[0]
    order(stage, SetNodeReady(node.name, ready=False))
    assert stage.heard(SilenceNode)
    stage.pass_s(590.0)
    assert instances(stage) == before and stage.status() is Status.RUNNING
    stage.pass_s(120.0)
    after = instances(stage)
    assert after[node.name] != before[node.name] and len(after.items() & before.items()) == 1
    assert operation_of(stage, Kind.REPAIR_NODES).is_done and operation_of(stage, Kind.REPAIR_NODES).nodes == (
        node.name,
    )


def test_a_node_that_is_ready_again_in_time_is_not_repaired() -> None:
    stage = with_pool(Stage().with_cluster())
    before = instances(stage)
    order(stage, SetNodeReady(stage.nodes()[0].name, ready=False))
    stage.pass_s(500.0)
    order(stage, SetNodeReady(stage.nodes()[0].name, ready=True))
    stage.pass_s(2000.0)
    assert instances(stage) == before


def test_a_gpu_node_on_demand_is_told_an_hour_before_the_maintenance_of_its_host_and_then_stops() -> None:
    stage = Stage().with_cluster().with_pool(spot=False)
    before = instances(stage)
    node = stage.nodes()[0]
    order(stage, MaintainHost(node.name))
    assert [each.node for each in stage.heard(AnnounceMaintenance) if isinstance(each, AnnounceMaintenance)] == [
        node.name
    ]
    stage.pass_s(3590.0)
    assert instances(stage) == before
    stage.pass_s(100.0)
    assert instances(stage).keys() == before.keys() and instances(stage)[node.name] != before[node.name]


def test_a_spot_node_is_preempted_for_the_maintenance_of_its_host() -> None:
    stage = Stage().with_cluster().with_pool()
    order(stage, MaintainHost(stage.nodes()[0].name))
    assert stage.heard(WarnNode) and not stage.heard(AnnounceMaintenance)
