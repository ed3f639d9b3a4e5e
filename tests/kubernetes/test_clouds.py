"""What agents rely on in every cloud: Google's, and one that is made up."""

import pkgutil
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from agents.clouds import registry
from agents.clouds.gke.cloud import CLOUD as GKE
from agents.clouds.interface import Machine, Notice, NoticeOptions
from agents.cluster.kubernetes.main import plan_of
from agents.cluster.kubernetes.manifest import worker_pod
from agents.cluster.kubernetes.observations import read_node
from agents.cluster.kubernetes.settings import KubernetesSettings, read_kubernetes_settings
from agents.notice.node import machine_of
from agents.notice.settings import NoticeSettings, read_notice_settings
from controlplane import clouds as providers
from controlplane.clouds.gke.requests import CRITICAL_PODS_S
from messages.clusters import NodeObservation, Presence, WorkerTemplate
from messages.jobs import Pod
from runtime.errors import UserError
from runtime.kubernetes.objects import Node
from tests.conftest import eventually
from tests.kubernetes.conftest import Bench, meddled
from tests.kubernetes.ground import JOB
from tests.kubernetes.node_clouds import CLOUDS, HILLS, NodeCloud, a_daemon, watched

NOW = 1_800_000_000.0


@pytest.fixture(params=CLOUDS)
async def here(request: pytest.FixtureRequest) -> AsyncIterator[NodeCloud]:
    async with CLOUDS[request.param]() as cloud:
        yield cloud


def a_node(labels: dict[str, str], taints: tuple[str, ...] = ()) -> Node:
    node = {
        "metadata": {"name": "n1", "uid": "u1", "labels": labels},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "first"}},
    }
    return msgspec.convert(node, Node)


def seen(here: NodeCloud, node: Node) -> NodeObservation:
    return read_node(node, here.cloud.nodes, NOW, 30.0)


async def test_a_source_tells_first_that_nothing_is_announced_and_then_the_preemption(here: NodeCloud) -> None:
    options = NoticeOptions(notice_s=30.0, metadata_host=here.metadata_host)
    async with watched(here.cloud.notices(Machine(is_spot=True), options)) as reported:
        await eventually(lambda: reported, what="the first word")
        assert set(reported) == {None}
        here.preempt()
        await eventually(lambda: reported[-1] is not None, what="the notice")
    assert reported[-1] == Notice(30.0, here.why)


async def test_a_node_s_labels_say_whether_it_is_a_spot_machine_and_has_gpus(here: NodeCloud) -> None:
    nodes = here.cloud.nodes
    assert machine_of(a_node({"other": "true"}), nodes) == Machine("first")
    for label, value in nodes.spot_labels:
        assert machine_of(a_node({label: value}), nodes).is_spot
        assert not machine_of(a_node({label: f"not-{value}"}), nodes).is_spot
    assert machine_of(a_node({nodes.accelerator_label: "any"}), nodes).has_gpus


async def test_a_node_s_pool_and_its_coming_end_are_read_in_the_words_of_its_cloud(here: NodeCloud) -> None:
    nodes = here.cloud.nodes
    assert seen(here, a_node({nodes.pool_label: "p7"})).pool == "p7"
    assert seen(here, a_node({nodes.pool_label: "p7", "tradewind-pool": "p8"})).pool == "p8"
    for taint in nodes.going_taints:
        assert seen(here, a_node({}, (taint,))).notice_s == 30.0
    others = {*GKE.nodes.going_taints, *HILLS.nodes.going_taints} - {*nodes.going_taints}
    assert seen(here, a_node({}, tuple(others))).notice_s is None


async def test_workers_get_the_driver_and_the_seconds_that_their_cloud_leaves_them(here: NodeCloud) -> None:
    settings = KubernetesSettings(cluster="here", cloud=here.kind, shutdown_grace_s=30.0)
    template = WorkerTemplate(pod=Pod(gpu=True))
    agent, host = worker_pod(plan_of(settings), "w1x1", JOB, template)["spec"]["containers"]
    assert _env(host).get("TRADEWIND_DRIVER_FOLDER", "") == here.cloud.nodes.driver_folder
    assert float(_env(agent)["TRADEWIND_NOTICE_S"]) == 30.0 - here.cloud.nodes.system_pods_s


async def test_a_notice_comes_from_the_cloud_to_the_master(here: NodeCloud, bench: Bench) -> None:
    await bench.start_and_hear(cloud=here.kind)
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    node = await bench.ground.node("n1", labels={here.cloud.nodes.pool_label: "p7"})
    await bench.ground.run(pod, node)
    worker = bench.speak(pod)
    await eventually(lambda: worker in bench.observations(Presence.ALIVE), what="the worker alive")
    settings = NoticeSettings(node=node, cloud=here.kind, metadata_host=here.metadata_host)
    async with a_daemon(settings, meddled(bench.meddler)):
        here.preempt()
        await eventually(lambda: bench.notices, what="the notice")
    assert [(noticed.worker, noticed.source) for noticed in bench.notices] == [(worker, "node")]
    await eventually(
        lambda: (observation := bench.node(node)) is not None and observation.notice_s, what="the node's notice"
    )
    observation = bench.node(node)
    assert observation is not None
    assert (observation.pool, observation.why) == ("p7", here.why)


async def test_the_metadata_server_is_found_by_the_variable_of_its_cloud(here: NodeCloud) -> None:
    environ = {"TRADEWIND_NODE": "n1", "TRADEWIND_CLOUD": here.kind}
    others = dict.fromkeys((GKE.metadata_variable, HILLS.metadata_variable), "127.0.0.1:1")
    others[here.cloud.metadata_variable] = "127.0.0.1:2"
    assert read_notice_settings({**environ, **others}).metadata_host == "127.0.0.1:2"
    assert read_notice_settings(environ).metadata_host is None


def test_agents_whose_manifests_name_no_cloud_are_on_gke() -> None:
    assert read_kubernetes_settings({"TRADEWIND_CLUSTER": "here"}).cloud == "gke"
    assert read_notice_settings({"TRADEWIND_NODE": "n1"}).cloud == "gke"


def test_a_cloud_that_the_agents_do_not_know_is_a_mistake_in_the_settings() -> None:
    given = {"TRADEWIND_CLUSTER": "here", "TRADEWIND_NODE": "n1", "TRADEWIND_CLOUD": "plains"}
    for read in (read_kubernetes_settings, read_notice_settings):
        with pytest.raises(UserError, match="TRADEWIND_CLOUD") as mistake:
            read(given)
        assert "gke" in mistake.value.hint


def test_agents_know_each_cloud_that_the_control_plane_has_a_folder_for() -> None:
    folders = {each.name for each in pkgutil.iter_modules(providers.__path__) if each.ispkg}
    assert folders == set(registry.kinds())


def test_agents_count_on_the_seconds_for_system_pods_that_the_control_plane_asks_gke_for() -> None:
    assert GKE.nodes.system_pods_s == CRITICAL_PODS_S


def _env(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}
