"""The region's private API, cuts, authorization, and the region as a process."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from kubernetes_asyncio import client as kubernetes

from runtime.children import free_port
from runtime.errors import UserError
from simulator.kubelet.processes import marked_processes
from simulator.kubernetes.gate import Cut
from simulator.region.region import Region
from simulator.region.settings import ClusterRequest, CutRequest
from tests.conftest import eventual_answer
from tests.simulator_region.conftest import CLUSTER, Bench, a_bench, an_api, bearer, refused, settings

NODE = {
    "labels": {"pool": "spot"},
    "taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
    "capacity": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"},
    "instance_id": "1001",
    "zone": "us-central1-a",
    "shutdown_grace_s": 30,
    "provider_id": "gce://project/us-central1-a/node-1",
}


async def ask(bench: Bench, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
    url = f"{bench.region.url}/region{path}"
    async with bench.session.request(method, url, json=body, params=query) as response:
        return response.status, await response.json()


async def test_the_cloud_makes_clusters_and_nodes_and_ends_them(bench: Bench) -> None:
    status, reported = await ask(bench, "GET", "")
    assert (status, reported["region"], reported["clusters"]) == (200, "us-central1", [CLUSTER])
    body = {"project": "project", "location": "us-central1", "token_seconds": 60}
    status, made = await ask(bench, "PUT", "/clusters/second", body)
    assert status == 200 and made["endpoint"] == f"{bench.region.url}/k8s/second"
    assert (await ask(bench, "PUT", "/clusters/second", body))[1] == made

    status, node = await ask(bench, "PUT", "/clusters/second/nodes/node-1", NODE)
    assert (status, node["state"]) == (200, "ready")
    assert (await ask(bench, "PUT", "/clusters/second/nodes/node-1", NODE))[1]["uid"] == node["uid"]
    async with an_api(made["endpoint"], bearer()) as api:
        core: Any = kubernetes.CoreV1Api(api)
        seen = await core.read_node("node-1")
        assert seen.spec.provider_id == NODE["provider_id"]
        assert ("spot", "true") in [(taint.key, taint.value) for taint in seen.spec.taints]
        tolerations = [{"key": "spot", "operator": "Exists"}]
        spec = {
            "containers": [{"name": "main", "image": "any", "command": ["sleep", "600"]}],
            "tolerations": tolerations,
        }
        pod = await core.create_namespaced_pod("default", {"metadata": {"name": "worker"}, "spec": spec})

        async def listed() -> Any:
            return (await ask(bench, "GET", "/clusters/second/nodes"))[1]

        nodes = await eventual_answer(listed, lambda found: found[0]["pods"], "the pod on its node")
        assert nodes[0]["pods"][0]["name"] == "worker" and nodes[0]["pods"][0]["pids"]["main"] > 0

    status, preempted = await ask(bench, "POST", "/clusters/second/nodes/node-1/preempt", {"notice_s": 60})
    assert (status, preempted["state"]) == (202, "preempted")
    status, answer = await ask(bench, "DELETE", "/clusters/second/nodes/node-1", grace_s="0")
    assert (status, answer) == (200, {"gone": True})
    assert (await ask(bench, "DELETE", "/clusters/second/nodes/node-1"))[0] == 200
    assert not any(mark.startswith(pod.metadata.uid) for mark in await asyncio.to_thread(marked_processes))
    assert (await ask(bench, "DELETE", "/clusters/second"))[0] == 200
    assert (await ask(bench, "GET", ""))[1]["clusters"] == [CLUSTER]


async def test_a_removal_need_not_be_waited_for(bench: Bench) -> None:
    await ask(bench, "PUT", f"/clusters/{CLUSTER}/nodes/node-1", {"instance_id": "1"})
    script = "trap '' TERM; echo up; while true; do sleep 0.1; done"
    await bench.pod("stubborn", "sh", "-c", script, terminationGracePeriodSeconds=1)
    await bench.until_log("stubborn", "up")
    status, answer = await ask(bench, "DELETE", f"/clusters/{CLUSTER}/nodes/node-1", wait="false")
    assert (status, answer) == (202, {"gone": False})

    async def nodes() -> Any:
        return (await ask(bench, "GET", f"/clusters/{CLUSTER}/nodes"))[1]

    assert [node["state"] for node in await nodes()] == ["removing"]
    await eventual_answer(nodes, lambda found: found == [], "the node's end")


async def test_deleting_a_cluster_ends_its_processes(bench: Bench) -> None:
    await bench.node("node-1")
    pod = await bench.pod("worker")
    await bench.until_phase("worker", "Running")
    assert (await ask(bench, "DELETE", f"/clusters/{CLUSTER}"))[0] == 200
    assert not any(mark.startswith(pod.metadata.uid) for mark in await asyncio.to_thread(marked_processes))
    with refused(404):
        await bench.core.list_node()


async def test_what_makes_no_sense_is_answered_with_a_sentence(bench: Bench) -> None:
    status, reported = await ask(bench, "PUT", f"/clusters/{CLUSTER}/nodes/node-1", {"labels": []})
    assert status == 400
    assert all(place in reported["error"] for place in ("instance_id: ", "labels: "))
    assert (await ask(bench, "PUT", "/clusters/Bad_Name", {}))[0] == 400
    status, reported = await ask(bench, "PUT", "/clusters/third", {"authorized_networks": ["203.0.113.7/24"]})
    assert (status, "203.0.113.7/24" in reported["error"]) == (400, True)
    assert (await ask(bench, "GET", "/clusters/none/nodes"))[0] == 404
    assert (await ask(bench, "POST", f"/clusters/{CLUSTER}/nodes/none/preempt", {}))[0] == 404
    assert (await ask(bench, "GET", "/weather"))[0] == 404
    async with bench.session.put(f"{bench.region.url}/region/clusters/x", data=b"{") as response:
        assert response.status == 400


async def test_a_cluster_is_served_at_a_port_of_its_own_as_well(bench: Bench) -> None:
    view = await bench.region.clusters.put(CLUSTER, ClusterRequest())
    async with an_api(f"http://{view.address}", bearer()) as api:
        found = await kubernetes.CoreV1Api(api).list_namespace()
    assert "default" in [each.metadata.name for each in found.items]


async def test_a_cluster_that_is_cut_off_drops_connections_while_pods_live_on(bench: Bench) -> None:
    await bench.node("node-1")
    await bench.pod("worker", "sh", "-c", "while true; do echo alive; sleep 0.05; done")
    await bench.until_log("worker", "alive")
    async with bench.watching(bench.core.list_namespaced_pod, namespace="default", timeout_seconds=30) as seen:
        await seen.until(("ADDED", "worker"))
        await ask(bench, "POST", "/cut", {"cut": True, "cluster": CLUSTER})
        await seen.until_ended()
        assert seen.error is not None
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await bench.core.list_namespaced_pod("default")
    (node,) = bench.region.clusters.nodes(CLUSTER)
    pid = node.pods[0]["pids"]["main"]
    os.kill(pid, 0)
    await ask(bench, "POST", "/cut", {"cut": False})
    pod = await bench.core.read_namespaced_pod("worker", "default")
    assert (pod.status.phase, pod.status.container_statuses[0].restart_count) == ("Running", 0)
    await bench.until_log("worker", "alive")


async def test_in_silence_nothing_comes_through_until_it_is_over(bench: Bench) -> None:
    async with bench.watching(bench.core.list_namespaced_config_map, namespace="default", timeout_seconds=30) as seen:
        await seen.until(("ADDED", "kube-root-ca.crt"))
        bench.region.clusters.cut(CutRequest(cut=True, how=Cut.SILENCE))
        body = {"metadata": {"name": "quiet"}}
        creating = asyncio.create_task(bench.core.create_namespaced_config_map("default", body))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await asyncio.shield(creating)
        assert ("ADDED", "quiet") not in seen.events
        bench.region.clusters.cut(CutRequest(cut=False))
        async with asyncio.timeout(20.0):
            await creating
        await seen.until(("ADDED", "quiet"))


async def test_a_bad_missing_or_foreign_token_is_refused(bench: Bench) -> None:
    endpoint = str(bench.api.configuration.host)
    for token in (
        "Bearer ",
        "Basic bWU6bWU=",
        "Bearer nonsense",
        "Bearer simsa.e30.00",
        "Bearer sim.99999999999.deadbeef",
        bearer(lifetime_s=-10.0),
    ):
        async with an_api(endpoint, token) as api:
            with refused(401, '"reason":"Unauthorized"'):
                await kubernetes.CoreV1Api(api).list_node()


async def test_a_service_account_s_token_has_its_rights_until_the_account_ends(bench: Bench) -> None:
    await bench.core.create_namespaced_service_account("default", {"metadata": {"name": "admin"}})
    spec: Any = {"spec": {"expirationSeconds": 600}}
    request = await bench.core.create_namespaced_service_account_token("admin", "default", spec)
    async with an_api(str(bench.api.configuration.host), f"Bearer {request.status.token}") as api:
        core = kubernetes.CoreV1Api(api)
        with refused(403, "cannot list resource"):
            await core.list_node()
        binding = {
            "metadata": {"name": "admin"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": "default"}],
        }
        await bench.roles.create_cluster_role_binding(binding)
        assert (await core.list_node()).items == []
        await bench.region.clusters.put("other", ClusterRequest())
        async with an_api(f"{bench.region.url}/k8s/other", f"Bearer {request.status.token}") as foreign:
            with refused(401):
                await kubernetes.CoreV1Api(foreign).list_node()
        await bench.core.delete_namespaced_service_account("admin", "default")
        with refused(401):
            await core.list_node()


async def test_a_region_that_was_started_again_has_forgotten_and_says_so() -> None:
    async with a_bench() as first:
        old = await first.core.create_namespaced_config_map("default", {"metadata": {"name": "mine"}})
        incarnation = first.region.incarnation
    async with a_bench() as second:
        assert second.region.incarnation != incarnation
        stale = {"namespace": "default", "resource_version": old.metadata.resource_version, "timeout_seconds": 20}
        async with second.watching(second.core.list_namespaced_config_map, **stale) as seen:
            await seen.until_ended()
        assert isinstance(seen.error, kubernetes.ApiException) and seen.error.status == 410


async def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    async with Region(settings()) as region:
        port = int(region.url.rpartition(":")[2])
        with pytest.raises(UserError, match=f"127.0.0.1:{port}"):
            async with Region(settings(port=port)):
                pytest.fail("two regions at one port")


ON_ITS_OWN = """
import sys, msgspec
from runtime.process import Stop, run
from simulator.region.region import Region
from simulator.region.settings import RegionSettings

async def main(stop: Stop) -> int:
    async with Region(msgspec.json.decode(sys.argv[1], type=RegionSettings)):
        await stop.wait()
    return 0

sys.exit(run(main))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_nothing_outlives_a_region_s_process(number: signal.Signals, tmp_path: Path) -> None:
    port = free_port()
    reported = msgspec.json.encode(settings(port=port)).decode()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", ON_ITS_OWN, reported, env=environment)
    try:
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}/region"

            async def serves() -> bool:
                try:
                    async with session.get(url) as response:
                        return response.status == 200
                except aiohttp.ClientConnectionError:
                    return False

            await eventual_answer(serves, bool, "the region to serve")
            async with session.put(f"{url}/clusters/{CLUSTER}", json={}) as response:
                view = await response.json()
            await session.put(f"{url}/clusters/{CLUSTER}/nodes/node-1", json={"instance_id": "1"})
            async with an_api(view["endpoint"], bearer()) as api:
                core: Any = kubernetes.CoreV1Api(api)
                script = "setsid sleep 600 & echo up; sleep 600"
                container = {"name": "main", "image": "any", "command": ["sh", "-c", script]}
                body = {"metadata": {"name": "worker"}, "spec": {"containers": [container]}}
                pod = await core.create_namespaced_pod("default", body)

                async def phase() -> str:
                    return str((await core.read_namespaced_pod("worker", "default")).status.phase)

                await eventual_answer(phase, lambda found: found == "Running", "the pod runs")
        process.send_signal(number)
        async with asyncio.timeout(20.0):
            code = await process.wait()
        assert code == (0 if number is signal.SIGTERM else -signal.SIGKILL)

        async def left() -> list[str]:
            marks = await asyncio.to_thread(marked_processes)
            folders = await asyncio.to_thread(lambda: [path.name for path in tmp_path.iterdir()])
            return [*(mark for mark in marks if mark.startswith(pod.metadata.uid)), *folders]

        await eventual_answer(left, lambda found: not found, "the end of its processes and folders")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_all_pods_may_have_the_address_of_a_name_of_this_machine() -> None:
    async with a_bench(pod_ip="localhost") as bench:
        await bench.node()
        for name in ("one", "two"):
            await bench.pod(name)
            assert (await bench.until_phase(name, "Running")).status.pod_ip == "127.0.0.1"


async def test_a_name_without_an_address_is_told_at_the_start() -> None:
    with pytest.raises(UserError, match="'no-such-name'"):
        async with Region(settings(pod_ip="no-such-name")):
            pytest.fail("it serves")
