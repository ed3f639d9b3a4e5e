"""Regions that do not answer, answer late, or restart."""

from simulator.cloud.model.effects import DropCluster, HostCluster, PlaceNode, RemoveNode, WarnNode
from simulator.cloud.model.events import RegionObeyed
from simulator.cloud.model.operations import timed_out
from simulator.cloud.model.requests import CreateCluster
from simulator.cloud.model.view import NodePhase
from tests.simulator_cloud.stage import CLUSTER, POOL, REGION, ZONE, Host, Stage, a_system_pool


def test_a_region_that_does_not_obey_is_asked_again_until_it_does() -> None:
    stage = Stage().with_cluster()
    stage.hosts[REGION].obeys = False
    stage.with_pool(2)
    assert stage.phases() == {NodePhase.BOOTING: 2}
    stage.hosts[REGION].obeys = True
    stage.pass_s(6.0)
    assert stage.phases() == {NodePhase.RUNNING: 2}


def test_a_region_that_is_not_there_is_not_asked_and_catches_up() -> None:
    stage = Stage().with_cluster().with_pool(2)
    stage.miss()
    heard = len(stage.hosts[REGION].heard)
    stage.resize(3)
    stage.preempt(stage.running()[0])
    stage.pass_s(10.0)
    assert len(stage.hosts[REGION].heard) == heard
    stage.hosts[REGION].obeys = True
    stage.see()
    warned = stage.heard(WarnNode)[0]
    assert isinstance(warned, WarnNode)
    assert warned.notice_s == 20.0, "what is left of it"
    stage.pass_s(100.0)
    assert len(stage.running()) == 3


def test_a_pool_can_be_deleted_while_its_region_is_away_and_is_removed_there_when_it_is_back() -> None:
    stage = Stage().with_cluster().with_pool(2)
    stage.miss()
    deleted = stage.delete_pool()
    stage.pass_s(11.0)
    assert stage.operation(deleted).is_done
    assert POOL not in stage.cloud.pools
    stage.hosts[REGION].obeys = True
    stage.see()
    assert len(stage.hosts[REGION].nodes) == 1


def test_a_cluster_can_be_deleted_and_made_again_while_its_region_is_away() -> None:
    stage = Stage().with_cluster().with_pool(2)
    first = stage.cloud.clusters[CLUSTER].uid
    stage.miss()
    stage.delete_cluster()
    stage.pass_s(11.0)
    assert not stage.cloud.clusters
    stage.grant(CreateCluster(CLUSTER, (a_system_pool(),), zones=(ZONE,)))
    stage.hosts[REGION].obeys = True
    stage.see()
    stage.pass_s(200.0)
    assert stage.hosts[REGION].clusters["tw"] not in ("", first)
    assert len(stage.hosts[REGION].nodes) == 1
    assert len(stage.heard(DropCluster)) == 1


def test_a_region_that_was_started_again_gets_its_clusters_and_new_machines() -> None:
    stage = Stage().with_cluster().with_pool(2)
    before = {node.name: node.instance.id for node in stage.running() if node.instance}
    stage.miss()
    stage.pass_s(30.0)
    stage.restart()
    assert stage.phases() == {NodePhase.WAITING: 2}
    stage.pass_s(60.0)
    after = {node.name: node.instance.id for node in stage.running() if node.instance}
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert isinstance(stage.hosts[REGION].heard[0], HostCluster)


def test_leftovers_of_an_earlier_cloud_are_cleared_from_a_region() -> None:
    stage = Stage()
    stage.hosts[REGION] = Host(clusters={"old": "whose"}, incarnation="another")
    stage.see()
    assert stage.hosts[REGION].clusters == {}
    stage.with_cluster()
    assert set(stage.hosts[REGION].clusters) == {"tw"}


def test_an_answer_to_an_older_request_teaches_nothing() -> None:
    stage = Stage().with_cluster().with_pool(1)
    placed = stage.heard(PlaceNode)[-1]
    stage.preempt(stage.nodes()[0], notice_s=0.0)
    stage.happen(RegionObeyed(stage.now_s, 1, placed))
    assert stage.phases() == {NodePhase.WAITING: 1}


def test_a_cluster_is_not_up_before_its_region_is() -> None:
    stage = Stage()
    stage.miss()
    created = stage.grant(CreateCluster(CLUSTER, (a_system_pool(),), zones=(ZONE,)))
    stage.pass_s(300.0)
    assert not stage.operation(created).is_done
    stage.hosts[REGION].obeys = True
    stage.see()
    stage.pass_s(60.0)
    assert stage.operation(created).is_done
    assert stage.operation(created).failed is None


def test_an_operation_does_not_wait_for_a_region_for_ever() -> None:
    stage = Stage()
    stage.miss()
    created = stage.grant(CreateCluster(CLUSTER, (a_system_pool(),), zones=(ZONE,)))
    stage.pass_s(701.0)
    failed = stage.operation(created).failed
    assert failed is not None
    assert failed.shortage is None
    assert failed.message == timed_out(700.0)


def test_the_second_life_of_a_node_begins_after_its_first_was_removed() -> None:
    stage = Stage().with_cluster().with_pool(1)
    stage.preempt(stage.nodes()[0])
    stage.pass_s(100.0)
    kinds = [type(request) for request in stage.hosts[REGION].heard][-3:]
    assert kinds == [WarnNode, RemoveNode, PlaceNode]
