"""Deployments, daemon sets and the scheduler, against real nodes of a region."""

from typing import Any

from simulator.region.settings import Taint
from tests.conftest import eventual_answer
from tests.simulator_region.conftest import Bench, a_bench, a_pod


def a_template(app: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": spec.pop("image", "one"), "command": ["sleep", "600"]}
    container["env"] = [{"name": "VERSION", "value": spec.pop("version", "1")}]
    whole = {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}
    return {"metadata": {"labels": {"app": app}}, "spec": whole}


def a_deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    strategy = spec.pop("strategy", None)
    whole = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": a_template(name, **spec)}
    return {"metadata": {"name": name}, "spec": {**whole, **({"strategy": strategy} if strategy else {})}}


def a_daemon_set(name: str, **spec: Any) -> dict[str, Any]:
    whole = {"selector": {"matchLabels": {"app": name}}, "template": a_template(name, **spec)}
    return {"metadata": {"name": name}, "spec": whole}


async def pods_of(bench: Bench, app: str) -> list[Any]:
    found = await bench.core.list_namespaced_pod("default", label_selector=f"app={app}")
    return list(found.items)


def running(pods: list[Any]) -> list[Any]:
    return [pod for pod in pods if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None]


async def test_a_deployment_keeps_its_pods_and_says_so(bench: Bench) -> None:
    await bench.node("node-1")
    await bench.node("node-2")
    await bench.apps.create_namespaced_deployment("default", a_deployment("web", 3))
    pods = await eventual_answer(
        lambda: pods_of(bench, "web"), lambda found: len(running(found)) == 3, "three pods run"
    )
    assert {pod.spec.node_name for pod in pods} == {"node-1", "node-2"}
    assert all(pod.metadata.owner_references[0].kind == "ReplicaSet" for pod in pods)

    async def status() -> Any:
        return (await bench.apps.read_namespaced_deployment("web", "default")).status

    reported = await eventual_answer(status, lambda found: found.available_replicas == 3, "its status")
    assert {each.type: each.status for each in reported.conditions} == {"Available": "True", "Progressing": "True"}

    gone = pods[0].metadata.name
    await bench.core.delete_namespaced_pod(gone, "default")
    replaced = await eventual_answer(
        lambda: pods_of(bench, "web"),
        lambda found: len(running(found)) == 3 and gone not in [pod.metadata.name for pod in found],
        "a pod in place of the one that was deleted",
    )
    assert len(replaced) == 3

    await bench.apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 1}})
    await eventual_answer(lambda: pods_of(bench, "web"), lambda found: len(found) == 1, "one pod is left")
    await bench.apps.delete_namespaced_deployment("web", "default")
    await eventual_answer(lambda: pods_of(bench, "web"), lambda found: not found, "no pod is left")
    assert (await bench.apps.list_namespaced_replica_set("default")).items == []


async def test_a_new_template_rolls_without_a_gap(bench: Bench) -> None:
    await bench.node("node-1")
    await bench.apps.create_namespaced_deployment("default", a_deployment("web", 2))
    await eventual_answer(lambda: pods_of(bench, "web"), lambda found: len(running(found)) == 2, "the first pods")
    least = 2

    async def look() -> list[Any]:
        nonlocal least
        found = await pods_of(bench, "web")
        least = min(least, len(running(found)))
        return found

    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "two"}]}}}}
    await bench.apps.patch_namespaced_deployment("web", "default", patch)
    await eventual_answer(
        look,
        lambda found: len(found) == 2 and all(pod.spec.containers[0].image == "two" for pod in running(found)),
        "two new pods and no old one",
    )
    assert least == 2


async def test_recreate_ends_the_old_before_it_starts_the_new(bench: Bench) -> None:
    await bench.node("node-1")
    await bench.apps.create_namespaced_deployment("default", a_deployment("one", 1, strategy={"type": "Recreate"}))
    await eventual_answer(lambda: pods_of(bench, "one"), lambda found: len(running(found)) == 1, "the first pod")
    most = 0

    async def look() -> list[Any]:
        nonlocal most
        found = await pods_of(bench, "one")
        most = max(most, len(running(found)))
        return running(found)

    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "two"}]}}}}
    await bench.apps.patch_namespaced_deployment("one", "default", patch)
    await eventual_answer(look, lambda found: [pod.spec.containers[0].image for pod in found] == ["two"], "the new pod")
    assert most == 1


async def test_a_daemon_set_is_on_every_node_that_takes_it(bench: Bench) -> None:
    spot = [Taint(key="spot", value="true", effect="NoSchedule")]
    await bench.node("plain", instance="i1", labels={"kind": "worker"})
    await bench.node("tainted", instance="i2", labels={"kind": "worker"}, taints=spot)
    await bench.node("other", instance="i3")
    tolerant = [{"key": "spot", "operator": "Exists"}]
    body = a_daemon_set("watcher", nodeSelector={"kind": "worker"}, tolerations=tolerant, hostNetwork=True)
    await bench.apps.create_namespaced_daemon_set("default", body)

    async def places() -> list[str]:
        return sorted(pod.spec.node_name or "" for pod in running(await pods_of(bench, "watcher")))

    await eventual_answer(places, lambda found: found == ["plain", "tainted"], "one pod on each of the two")
    await bench.node("late", instance="i4", labels={"kind": "worker"})
    await eventual_answer(
        places, lambda found: found == ["late", "plain", "tainted"], "one on the node that came later"
    )
    status = (await bench.apps.read_namespaced_daemon_set("watcher", "default")).status
    assert status.desired_number_scheduled == 3

    await bench.region.clusters.delete_node("tests", "plain", grace_s=0.0)
    await eventual_answer(places, lambda found: found == ["late", "tainted"], "the pod goes with its node")

    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "two"}]}}}}
    await bench.apps.patch_namespaced_daemon_set("watcher", "default", patch)

    async def images() -> list[str]:
        return [pod.spec.containers[0].image for pod in running(await pods_of(bench, "watcher"))]

    await eventual_answer(images, lambda found: found == ["two", "two"], "both are renewed")


async def test_pods_wait_for_a_node_with_room_and_learn_why(bench: Bench) -> None:
    await bench.node("small", capacity={"nvidia.com/gpu": "1", "cpu": "2"})
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    await bench.pod("first", container=gpu)
    await bench.until_phase("first", "Running")
    await bench.pod("second", container=gpu)

    def unschedulable(pod: Any) -> bool:
        conditions = {each.type: each for each in pod.status.conditions or []}
        found = conditions.get("PodScheduled")
        return found is not None and found.status == "False" and "Insufficient nvidia.com/gpu" in found.message

    await bench.until_pod("second", unschedulable)
    await bench.core.delete_namespaced_pod("first", "default")
    await bench.until_phase("second", "Running")


async def test_taints_selectors_and_affinity_are_heeded(bench: Bench) -> None:
    await bench.node("gpu", instance="i1", labels={"kind": "gpu"}, taints=[Taint(key="gpu", effect="NoSchedule")])
    await bench.node("cpu", instance="i2", labels={"kind": "cpu"})
    tolerant = [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    term = {"matchExpressions": [{"key": "kind", "operator": "In", "values": ["gpu"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    await bench.pod("anywhere")
    await bench.pod("wants-gpu", tolerations=tolerant, affinity=affinity)
    await bench.pod("may-not", nodeSelector={"kind": "gpu"})
    assert (await bench.until_phase("anywhere", "Running")).spec.node_name == "cpu"
    assert (await bench.until_phase("wants-gpu", "Running")).spec.node_name == "gpu"
    waiting = await bench.until_pod("may-not", lambda pod: pod.status.conditions)
    assert waiting.spec.node_name is None
    await bench.core.patch_node("gpu", {"spec": {"taints": None}}, _content_type="application/merge-patch+json")
    assert (await bench.until_phase("may-not", "Running")).spec.node_name == "gpu"


async def test_anti_affinity_keeps_one_pod_to_a_node(bench: Bench) -> None:
    await bench.node("node-1", instance="i1")
    await bench.node("node-2", instance="i2")
    term = {"labelSelector": {"matchLabels": {"app": "alone"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for index in range(3):
        body = a_pod(f"alone-{index}", labels={"app": "alone"}, affinity=affinity)
        await bench.core.create_namespaced_pod("default", body)
    pods = await eventual_answer(
        lambda: pods_of(bench, "alone"), lambda found: len(running(found)) == 2, "two of three"
    )
    assert {pod.spec.node_name for pod in running(pods)} == {"node-1", "node-2"}


async def test_a_cordoned_node_takes_no_new_pods_but_keeps_its_old(bench: Bench) -> None:
    await bench.node("node-1")
    await bench.pod("old")
    await bench.until_phase("old", "Running")
    await bench.core.patch_node("node-1", {"spec": {"unschedulable": True}})
    await bench.pod("new")
    await bench.until_pod("new", lambda pod: pod.status.conditions)
    assert (await bench.core.read_namespaced_pod("old", "default")).status.phase == "Running"
    await bench.core.create_namespaced_pod_eviction("old", "default", {"metadata": {"name": "old"}})
    await bench.until_pod_gone("old")


async def test_pods_leave_a_node_that_stays_unready_as_long_as_they_tolerate() -> None:
    async with a_bench(toleration_s=1, node_monitor_s=0.0) as bench:
        await bench.node("node-1")
        forever = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]
        await bench.pod("leaves")
        await bench.pod("stays", tolerations=forever)
        for name in ("leaves", "stays"):
            await bench.until_phase(name, "Running")
        bench.region.clusters.get("tests").preempt("node-1", 0.0, delete_node=False)
        leaving = await bench.until_pod("leaves", lambda pod: pod.metadata.deletion_timestamp)
        assert {each.type: each.status for each in leaving.status.conditions}["Ready"] == "False"
        staying = await bench.core.read_namespaced_pod("stays", "default")
        assert staying.metadata.deletion_timestamp is None
