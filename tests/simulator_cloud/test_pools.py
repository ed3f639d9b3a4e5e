"""Clusters and pools: creation, growth, shrinking, shortage and deletion."""

from collections import Counter
from dataclasses import replace

from simulator.cloud.model import refusals, view
from simulator.cloud.model.effects import DropCluster, HostCluster, PlaceNode, RemoveNode, WarnNode
from simulator.cloud.model.names import ClusterKey, NodeName, PoolKey
from simulator.cloud.model.operations import not_all_running
from simulator.cloud.model.refusals import Code
from simulator.cloud.model.requests import (
    CreateCluster,
    CreatePool,
    DeleteCluster,
    DeleteInstances,
    DeletePool,
    PoolWish,
    ResizePool,
    StockOut,
    UpdatePool,
)
from simulator.cloud.model.state import Shortage
from simulator.cloud.model.view import NodePhase, Status
from tests.simulator_cloud.stage import (
    CLUSTER,
    L4,
    POOL,
    PROJECT,
    REGION,
    ZONE,
    Stage,
    a_spec,
    a_system_pool,
    some_rules,
)


def delete_instances(stage: Stage, *names: NodeName) -> DeleteInstances:
    return DeleteInstances(PROJECT, ZONE, stage.pool().groups[0].name, names)


def test_a_cluster_is_provisioned_and_then_runs_with_its_system_pool() -> None:
    stage = Stage()
    created = stage.grant(CreateCluster(CLUSTER, (a_system_pool(),), zones=(ZONE,)))
    assert view.cluster_status(stage.cloud, stage.cloud.clusters[CLUSTER]) is Status.PROVISIONING
    stage.pass_s(99.0)
    assert not stage.cloud.clusters[CLUSTER].endpoint
    stage.pass_s(50.0)
    cluster = stage.cloud.clusters[CLUSTER]
    assert cluster.endpoint == "http://host/k8s/tw"
    assert view.cluster_status(stage.cloud, cluster) is Status.RUNNING
    assert stage.operation(created).is_done
    assert stage.operation(created).failed is None
    assert len(stage.running(PoolKey(*CLUSTER, "system"))) == 1


def test_a_pool_is_ready_when_its_nodes_have_booted_and_not_before() -> None:
    stage = Stage().with_cluster()
    created = stage.grant(CreatePool(CLUSTER, PoolWish("gpus", a_spec(3))))
    assert stage.status() is Status.PROVISIONING
    assert stage.phases() == {NodePhase.BOOTING: 3}
    stage.pass_s(39.0)
    assert not stage.operation(created).is_done
    stage.pass_s(1.0)
    assert stage.phases() == {NodePhase.RUNNING: 3}
    assert stage.operation(created).is_done
    assert stage.status() is Status.RUNNING


def test_a_node_is_placed_with_what_gke_puts_on_it() -> None:
    stage = Stage().with_cluster().with_pool(1)
    placed = stage.heard(PlaceNode)[-1]
    assert isinstance(placed, PlaceNode)
    assert placed.labels["cloud.google.com/gke-nodepool"] == "gpus"
    assert placed.labels["cloud.google.com/gke-accelerator"] == "nvidia-l4"
    assert placed.labels["cloud.google.com/gke-spot"] == "true"
    assert placed.labels["topology.kubernetes.io/zone"] == ZONE
    assert placed.labels["job"] == "mnist"
    assert placed.capacity == {"cpu": "8", "memory": "32768Mi", "pods": "110", "nvidia.com/gpu": "1"}
    assert [(taint.key, taint.value) for taint in placed.taints] == [("nvidia.com/gpu", "present")]
    assert placed.node.startswith("gke-tw-gpus-")


def test_growing_keeps_the_nodes_and_shrinking_takes_nodes_of_the_clouds_choice() -> None:
    stage = Stage().with_cluster().with_pool(3)
    before = {node.name for node in stage.nodes()}
    stage.resize(5)
    assert stage.status() is Status.RECONCILING
    stage.pass_s(60.0)
    assert before < {node.name for node in stage.running()}
    stage.resize(2)
    stage.pass_s(20.0)
    assert len(stage.running()) == 2
    assert len(stage.heard(RemoveNode)) == 3


def test_the_choice_of_whom_to_let_go_follows_from_the_seed() -> None:
    def left(seed: int) -> list[str]:
        stage = Stage(some_rules(seed=seed)).with_cluster().with_pool(6)
        stage.resize(3)
        return [node.name for node in stage.nodes()]

    assert left(1) == left(1)
    assert left(1) != left(2)


def test_shrinking_lets_go_first_of_those_that_have_no_instance() -> None:
    stage = Stage().with_cluster()
    stage.market(capacity=2)
    stage.with_pool(4)
    kept = {node.name for node in stage.running()}
    stage.pass_s(60.0)
    stage.resize(2)
    assert {node.name for node in stage.nodes()} == kept


def test_a_stockout_arrives_inside_the_operation_and_the_pool_keeps_trying() -> None:
    stage = Stage().with_cluster()
    stage.market(capacity=1)
    created = stage.grant(CreatePool(CLUSTER, PoolWish("gpus", a_spec(3))))
    stage.pass_s(59.0)
    assert not stage.operation(created).is_done
    stage.pass_s(2.0)
    failed = stage.operation(created).failed
    assert failed is not None
    assert failed.shortage is Shortage.STOCKOUT
    first = next(node.refused for node in stage.nodes() if node.refused is not None)
    assert failed.message == not_all_running(first, 60.0, wanted=3, running=1, missing=2)
    assert stage.status() is Status.RUNNING_WITH_ERROR
    stage.market(capacity=3)
    stage.pass_s(80.0)
    assert len(stage.running()) == 3


def test_a_pool_keeps_its_error_status_long_after_its_nodes_came() -> None:
    stage = Stage(replace(some_rules(), sticky_error_s=500.0)).with_cluster()
    stage.market(capacity=1)
    stage.grant(CreatePool(CLUSTER, PoolWish("gpus", a_spec(3))))
    stage.pass_s(61.0)
    stage.market(capacity=3)
    stage.pass_s(80.0)
    assert (len(stage.running()), stage.status()) == (3, Status.RUNNING_WITH_ERROR)
    stage.pass_s(501.0)
    assert stage.status() is Status.RUNNING


def test_a_pool_that_was_created_without_nodes_is_in_error_and_gets_them_later() -> None:
    stage = Stage().with_cluster()
    stage.market(capacity=0)
    stage.grant(CreatePool(CLUSTER, PoolWish("gpus", a_spec(2))))
    stage.pass_s(61.0)
    assert stage.status() is Status.ERROR
    stage.market(capacity=2)
    stage.pass_s(80.0)
    assert (len(stage.running()), stage.status()) == (2, Status.ERROR)
    stage.resize(1)
    stage.pass_s(20.0)
    assert stage.status() is Status.RUNNING, "an operation that ended well clears it"


def test_an_operation_waits_for_all_nodes_that_it_was_asked_for_though_some_were_deleted() -> None:
    stage = Stage().with_cluster()
    stage.market(capacity=1)
    created = stage.grant(CreatePool(CLUSTER, PoolWish("gpus", a_spec(2))))
    stage.pass_s(45.0)
    waiting = [node.name for node in stage.nodes() if node.instance is None]
    stage.ask(delete_instances(stage, *waiting))
    stage.pass_s(10.0)
    assert (stage.target(), len(stage.running())) == (1, 1)
    assert not stage.operation(created).is_done
    stage.pass_s(10.0)
    failed = stage.operation(created).failed
    assert failed is not None
    assert failed.shortage is Shortage.STOCKOUT


def test_a_pool_has_no_group_and_asks_for_no_machines_at_first() -> None:
    stage = Stage(replace(some_rules(), group_s=5.0)).with_cluster()
    stage.grant(CreatePool(CLUSTER, PoolWish("gpus", a_spec(1))))
    stage.pass_s(4.0)
    assert stage.phases() == {NodePhase.WAITING: 1}
    stage.pass_s(2.0)
    assert stage.phases() == {NodePhase.BOOTING: 1}


def test_a_cluster_whose_system_pool_runs_short_is_in_error_until_it_is_not() -> None:
    stage = Stage()
    stage.ask(StockOut(L4._replace(accelerator="cpu"), on=True))
    created = stage.grant(CreateCluster(CLUSTER, (a_system_pool(),), zones=(ZONE,)))
    stage.pass_s(170.0)
    assert stage.operation(created).failed is not None
    assert view.cluster_status(stage.cloud, stage.cloud.clusters[CLUSTER]) is Status.ERROR
    stage.ask(StockOut(L4._replace(accelerator="cpu"), on=False))
    stage.pass_s(80.0)
    assert view.cluster_status(stage.cloud, stage.cloud.clusters[CLUSTER]) is Status.RUNNING


def test_a_stockout_by_hand_holds_up_on_demand_nodes_too() -> None:
    stage = Stage().with_cluster()
    stage.ask(StockOut(L4, on=True))
    stage.with_pool(1, spot=False)
    assert stage.phases() == {NodePhase.WAITING: 1}


def test_one_operation_at_a_time_on_a_pool() -> None:
    stage = Stage().with_cluster().with_pool(1)
    resize = stage.resize(2)
    for request in (ResizePool(POOL, 3), DeletePool(POOL), UpdatePool(POOL, a_spec(), b"")):
        refusal = stage.refuse(request)
        assert refusal.code is Code.FAILED_PRECONDITION
        assert refusal.reason == "CLUSTER_ALREADY_HAS_OPERATION"
        assert resize.name in refusal.message
    assert stage.refuse(DeleteCluster(CLUSTER)).code is Code.FAILED_PRECONDITION


def test_nothing_may_be_done_with_a_cluster_that_is_being_made() -> None:
    stage = Stage()
    stage.grant(CreateCluster(CLUSTER, (a_system_pool(),), zones=(ZONE,)))
    assert stage.refuse(CreatePool(CLUSTER, PoolWish("gpus", a_spec()))).code is Code.FAILED_PRECONDITION
    assert stage.refuse(DeleteCluster(CLUSTER)).code is Code.FAILED_PRECONDITION


def test_a_cluster_takes_only_so_many_operations_at_once() -> None:
    stage = Stage().with_cluster()
    for number in range(5):
        stage.grant(CreatePool(CLUSTER, PoolWish(f"gpus-{number}", a_spec(1))))
    refusal = stage.refuse(CreatePool(CLUSTER, PoolWish("gpus-5", a_spec(1))))
    assert refusal.code is Code.RESOURCE_EXHAUSTED
    assert refusal == refusals.too_many_operations(CLUSTER, 5)
    stage.pass_s(60.0)
    stage.grant(CreatePool(CLUSTER, PoolWish("gpus-5", a_spec(1))))


def test_what_exists_cannot_be_made_and_what_does_not_cannot_be_changed() -> None:
    stage = Stage().with_cluster().with_pool()
    assert stage.refuse(CreateCluster(CLUSTER, (a_system_pool(),))).code is Code.ALREADY_EXISTS
    assert stage.refuse(CreatePool(CLUSTER, PoolWish("gpus", a_spec()))).code is Code.ALREADY_EXISTS
    nowhere = ClusterKey(PROJECT, REGION, "nowhere")
    assert stage.refuse(DeleteCluster(nowhere)).code is Code.NOT_FOUND
    assert stage.refuse(CreatePool(nowhere, PoolWish("gpus", a_spec()))).code is Code.NOT_FOUND
    assert stage.refuse(ResizePool(PoolKey(*CLUSTER, "nowhere"), 1)).code is Code.NOT_FOUND
    assert stage.refuse(DeletePool(PoolKey(*nowhere, "gpus"))).code is Code.NOT_FOUND


def test_what_makes_no_sense_is_refused() -> None:
    stage = Stage()
    assert stage.refuse(CreateCluster(ClusterKey(PROJECT, "mars-north1", "tw"), ())).code is Code.PERMISSION_DENIED
    assert stage.refuse(CreateCluster(CLUSTER, ())).code is Code.INVALID_ARGUMENT
    assert stage.refuse(CreateCluster(CLUSTER._replace(cluster="No"), ())).code is Code.INVALID_ARGUMENT
    twice = (a_system_pool(), a_system_pool())
    assert stage.refuse(CreateCluster(CLUSTER, twice)).code is Code.INVALID_ARGUMENT
    elsewhere = CreateCluster(CLUSTER, (a_system_pool(),), zones=("europe-west4-a",))
    assert stage.refuse(elsewhere).code is Code.INVALID_ARGUMENT
    stage.with_cluster()
    abroad = PoolWish("gpus", a_spec(zone="europe-west4-a"))
    assert stage.refuse(CreatePool(CLUSTER, abroad)).code is Code.INVALID_ARGUMENT
    assert stage.refuse(CreatePool(CLUSTER, PoolWish("GPUS", a_spec()))).code is Code.INVALID_ARGUMENT
    assert stage.refuse(CreatePool(CLUSTER, PoolWish("gpus", a_spec(-1)))).code is Code.INVALID_ARGUMENT


def test_a_regional_pool_without_zones_has_nodes_in_three() -> None:
    stage = Stage()
    stage.grant(CreateCluster(CLUSTER, (a_system_pool(),)))
    stage.pass_s(200.0)
    stage.grant(CreatePool(CLUSTER, PoolWish("gpus", replace(a_spec(2), zones=()))))
    stage.pass_s(60.0)
    assert Counter(node.zone for node in stage.running()) == {f"us-central1-{letter}": 2 for letter in "abc"}


def test_deleting_particular_instances_removes_exactly_those_and_lowers_the_target() -> None:
    stage = Stage().with_cluster().with_pool(4)
    first, second, *others = stage.nodes()
    deleted = stage.grant(delete_instances(stage, first.name, second.name))
    assert stage.target() == 2
    assert stage.nodes() == others
    stage.pass_s(11.0)
    assert stage.operation(deleted).is_done
    assert not {first.name, second.name} & set(stage.hosts[REGION].nodes)
    stage.pass_s(100.0)
    assert [node.name for node in stage.running()] == [node.name for node in others]


def test_instances_of_another_group_are_not_deleted() -> None:
    stage = Stage().with_cluster().with_pool(1)
    strangers = stage.refuse(delete_instances(stage, NodeName("somebody")))
    assert strangers.code is Code.INVALID_ARGUMENT
    assert stage.refuse(DeleteInstances(PROJECT, ZONE, "nothing", ())).code is Code.NOT_FOUND


def test_compute_operations_are_in_nobodys_way() -> None:
    stage = Stage().with_cluster().with_pool(3)
    stage.grant(delete_instances(stage, stage.nodes()[0].name))
    stage.resize(4)
    stage.pass_s(60.0)
    assert len(stage.running()) == 4


def test_a_deleted_pool_leaves_nothing_in_the_cloud_or_the_region() -> None:
    stage = Stage().with_cluster().with_pool(3)
    deleted = stage.delete_pool()
    assert stage.status() is Status.STOPPING
    stage.pass_s(11.0)
    assert stage.operation(deleted).is_done
    assert POOL not in stage.cloud.pools
    assert len(stage.hosts[REGION].nodes) == 1, "the system pool's"
    stage.with_pool(1)
    assert len(stage.running()) == 1


def test_a_deleted_cluster_takes_everything_with_it() -> None:
    stage = Stage().with_cluster().with_pool(3)
    deleted = stage.delete_cluster()
    stage.pass_s(11.0)
    assert stage.operation(deleted).is_done
    assert not stage.cloud.clusters
    assert not stage.cloud.pools
    assert not stage.cloud.nodes
    assert not stage.cloud.region_nodes
    assert not stage.cloud.hosted
    assert stage.hosts[REGION].clusters == {}


def test_an_update_is_for_the_nodes_that_come_after_it() -> None:
    stage = Stage().with_cluster().with_pool(1)
    updated = stage.grant(UpdatePool(POOL, replace(stage.pool().spec, labels={"job": "other"}), b"said"))
    stage.pass_s(11.0)
    assert stage.operation(updated).is_done
    assert stage.pool().echo == b"said"
    stage.resize(2)
    stage.pass_s(60.0)
    placed = [request for request in stage.heard(PlaceNode) if isinstance(request, PlaceNode)]
    assert [request.labels["job"] for request in placed[-2:]] == ["mnist", "other"]


def test_two_clusters_of_one_name_in_one_region_are_told_apart_there() -> None:
    stage = Stage().with_cluster()
    other = ClusterKey(PROJECT, "us-central1-b", "tw")
    stage.grant(CreateCluster(other, (PoolWish("system", a_spec(1, False, "us-central1-b", "e2-standard-2")),)))
    stage.pass_s(200.0)
    assert len(stage.hosts[REGION].clusters) == 2
    assert view.cluster_status(stage.cloud, stage.cloud.clusters[other]) is Status.RUNNING


def test_a_region_hears_of_a_cluster_before_it_hears_of_its_nodes() -> None:
    stage = Stage().with_cluster()
    heard = stage.hosts[REGION].heard
    assert isinstance(heard[0], HostCluster)
    assert isinstance(heard[1], PlaceNode)
    assert not any(isinstance(request, DropCluster | WarnNode) for request in heard)
