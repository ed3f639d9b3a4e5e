"""The end of nodes: with notice, without notice, by command; and what pods, processes and watches see."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from simulator.kubelet.processes import marked_processes
from simulator.region.node import windows
from simulator.region.settings import MaintenanceEvent, PreemptRequest, SilenceRequest
from tests.conftest import eventual_answer
from tests.simulator_region.conftest import CLUSTER, Bench, a_bench, a_node

FLAVOR = {"Metadata-Flavor": "Google"}
LISTENS = """
import signal, sys, time
def told(*_):
    print("told", flush=True)
    time.sleep(0.2)
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
print("up", flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
print("up", flush=True)
while True:
    time.sleep(1)
"""
SEES_NOTICE = """
import os, urllib.request
root = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/preempted"
def ask(query=""):
    request = urllib.request.Request(root + query, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode(), answer.headers["ETag"]
value, etag = ask()
print("first", value, flush=True)
value, etag = ask(f"?wait_for_change=true&timeout_sec=60&last_etag={etag}")
print("then", value, flush=True)
"""


async def marked(uid: str) -> bool:
    return any(mark.startswith(uid) for mark in await asyncio.to_thread(marked_processes))


async def node_state(bench: Bench, name: str = "node-1") -> str | None:
    return next((str(node.state) for node in bench.region.clusters.nodes(CLUSTER) if node.name == name), None)


async def ready(bench: Bench, name: str = "node-1") -> str:
    node = await bench.core.read_node(name)
    return str({each.type: each.status for each in node.status.conditions}["Ready"])


@pytest.mark.parametrize(
    ("notice_s", "ordinary_s", "critical_s"), [(30, 15, 15), (120, 105, 15), (5, 5, 0), (20, 15, 5), (0, 0, 0)]
)
def test_ordinary_pods_get_the_first_half_of_the_usual_notice(
    notice_s: float, ordinary_s: float, critical_s: float
) -> None:
    assert windows(notice_s) == (ordinary_s, critical_s)


async def test_a_new_node_is_ready_and_complete(bench: Bench) -> None:
    request = a_node(labels={"pool": "spot"}, capacity={"cpu": "96", "nvidia.com/gpu": "8"}, zone="us-central1-b")
    view = await bench.region.clusters.put_node(CLUSTER, "node-1", request)
    node = await eventual_answer(
        lambda: bench.core.read_node("node-1"), lambda found: not found.spec.taints, "the node controller's consent"
    )
    assert node.metadata.uid == view.uid
    assert node.metadata.labels["pool"] == "spot"
    assert node.metadata.labels["topology.kubernetes.io/zone"] == "us-central1-b"
    assert node.status.allocatable["nvidia.com/gpu"] == "8"
    assert await ready(bench) == "True"
    again = await bench.region.clusters.put_node(CLUSTER, "node-1", request)
    assert again.uid == view.uid


async def test_a_notice_is_seen_in_the_metadata_and_as_sigterm_and_then_the_node_is_lost(bench: Bench) -> None:
    await bench.node("node-1")
    quiet = await bench.pod("worker", "python", "-c", LISTENS, terminationGracePeriodSeconds=30)
    stubborn = await bench.pod("stubborn", "python", "-c", STUBBORN, terminationGracePeriodSeconds=30)
    await bench.pod("notice", "python", "-c", SEES_NOTICE, hostNetwork=True, priorityClassName="system-node-critical")
    await bench.until_log("worker", "up")
    await bench.until_log("stubborn", "up")
    await bench.until_log("notice", "first FALSE")

    view = bench.region.clusters.preempt(CLUSTER, "node-1", PreemptRequest(notice_s=2.0))
    assert view.state == "preempted"
    await bench.until_log("notice", "then TRUE")
    assert await ready(bench) == "False"
    await bench.until_log("worker", "told")
    ended = await bench.until_phase("worker", "Failed")
    assert (ended.status.reason, ended.status.container_statuses[0].state.terminated.exit_code) == ("Terminated", 0)
    await eventual_answer(lambda: node_state(bench), lambda state: state == "lost", "the end of the notice")
    await eventual_answer(lambda: ready(bench), lambda status: status == "Unknown", "a node that is not heard of")
    for pod in (quiet, stubborn):
        assert not await marked(pod.metadata.uid)
    taints = (await bench.core.read_node("node-1")).spec.taints
    assert ("node.kubernetes.io/unreachable", "NoExecute") in [(taint.key, taint.effect) for taint in taints]


async def test_a_daemon_on_a_node_with_a_notice_lives_to_see_it_and_is_not_made_again(bench: Bench) -> None:
    await bench.node("node-1")
    labels = {"app": "notice"}
    container = {"name": "main", "image": "any", "command": ["python", "-c", LISTENS]}
    spec = {"containers": [container], "tolerations": [{"operator": "Exists"}], "hostNetwork": True}
    template = {"metadata": {"labels": labels}, "spec": {**spec, "priorityClassName": "system-node-critical"}}
    body = {"metadata": {"name": "notice"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    await bench.apps.create_namespaced_daemon_set("default", body)

    async def daemons() -> list[Any]:
        return list((await bench.core.list_namespaced_pod("default", label_selector="app=notice")).items)

    (daemon,) = await eventual_answer(
        daemons, lambda found: [pod.status.phase for pod in found] == ["Running"], "the daemon"
    )
    await bench.until_log(daemon.metadata.name, "up")
    await bench.pod("worker", "python", "-c", STUBBORN)
    await bench.until_log("worker", "up")
    bench.region.clusters.preempt(CLUSTER, "node-1", PreemptRequest(notice_s=17.0))
    await bench.until_log("worker", "told")
    assert (await daemons())[0].metadata.deletion_timestamp is None
    assert "told" not in await bench.core.read_namespaced_pod_log(daemon.metadata.name, "default")
    await bench.core.delete_namespaced_pod("worker", "default", grace_period_seconds=0)
    await bench.until_pod(daemon.metadata.name, lambda pod: pod.status.phase == "Failed")
    assert [pod.metadata.uid for pod in await daemons()] == [daemon.metadata.uid]


async def test_critical_pods_outlive_ordinary_ones_in_the_notice(bench: Bench) -> None:
    await bench.node("node-1")
    await bench.pod("ordinary", "python", "-c", LISTENS)
    critical = await bench.pod("critical", "python", "-c", LISTENS, priorityClassName="system-node-critical")
    for name in ("ordinary", "critical"):
        await bench.until_log(name, "up")
    bench.region.clusters.preempt(CLUSTER, "node-1", PreemptRequest(notice_s=20.0))
    await bench.until_phase("ordinary", "Failed")
    await bench.until_phase("critical", "Failed")
    reported = (await bench.core.read_namespaced_pod("ordinary", "default")).status.container_statuses[0]
    later = (await bench.core.read_namespaced_pod("critical", "default")).status.container_statuses[0]
    assert reported.state.terminated.finished_at <= later.state.terminated.finished_at
    assert not await marked(critical.metadata.uid)
    rejected = await bench.pod("too-late", nodeName="node-1")
    assert rejected.spec.node_name == "node-1"
    assert (await bench.until_phase("too-late", "Failed")).status.reason == "Terminated"
    await bench.region.clusters.delete_node(CLUSTER, "node-1", grace_s=0.0)


async def test_a_node_lost_without_a_word_says_nothing_to_anybody(bench: Bench) -> None:
    await bench.node("node-1")
    made = await bench.pod("worker", "python", "-c", LISTENS, restartPolicy="Always")
    await bench.until_log("worker", "up")
    bench.region.clusters.preempt(CLUSTER, "node-1", PreemptRequest(notice_s=0.0))

    async def alive() -> bool:
        return await marked(made.metadata.uid)

    await eventual_answer(alive, lambda found: not found, "the end of its processes")
    assert "told" not in await bench.core.read_namespaced_pod_log("worker", "default")
    await eventual_answer(lambda: ready(bench), lambda status: status == "Unknown", "the node to be missed")
    pod = await bench.core.read_namespaced_pod("worker", "default")
    assert pod.status.phase == "Running"
    assert {each.type: each.status for each in pod.status.conditions}["Ready"] == "False"


async def test_a_lost_node_that_is_deleted_takes_its_pods_along(bench: Bench) -> None:
    await bench.node("node-1")
    await bench.pod("worker")
    await bench.until_phase("worker", "Running")
    async with bench.watching(bench.core.list_node, timeout_seconds=20) as nodes:
        await nodes.until(("ADDED", "node-1"))
        bench.region.clusters.preempt(CLUSTER, "node-1", PreemptRequest(notice_s=0.0, delete_node=True))
        await nodes.until(("DELETED", "node-1"))
    await bench.until_pod_gone("worker")
    assert bench.region.clusters.nodes(CLUSTER) == []


async def test_a_machine_that_comes_again_under_the_same_name_is_another_node(bench: Bench) -> None:
    await bench.node("node-1", instance="first-life")
    old = await bench.core.read_node("node-1")
    await bench.pod("worker", "python", "-c", STUBBORN)
    await bench.until_log("worker", "up")
    await bench.node("node-1", instance="second-life")
    new = await bench.core.read_node("node-1")
    assert new.metadata.uid != old.metadata.uid
    await bench.until_pod_gone("worker")
    await bench.pod("worker")
    await bench.until_phase("worker", "Running")


async def test_removing_a_node_ends_its_pods_in_good_order(bench: Bench) -> None:
    await bench.node("node-1")
    made = await bench.pod("worker", "python", "-c", LISTENS)
    await bench.until_log("worker", "up")
    async with bench.watching(bench.core.list_namespaced_pod, namespace="default", timeout_seconds=20) as seen:
        await seen.until(("ADDED", "worker"))
        assert await bench.region.clusters.delete_node(CLUSTER, "node-1")
        await seen.until(("DELETED", "worker"))
    assert seen.raw[-1]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert not await marked(made.metadata.uid)
    assert (await bench.core.list_node()).items == []
    assert await bench.region.clusters.delete_node(CLUSTER, "node-1")


async def test_a_removal_cuts_a_notice_short(bench: Bench) -> None:
    await bench.node("node-1")
    await bench.pod("worker", "python", "-c", STUBBORN)
    await bench.until_log("worker", "up")
    bench.region.clusters.preempt(CLUSTER, "node-1", PreemptRequest(notice_s=60.0))
    await bench.until_log("worker", "told")
    assert await bench.region.clusters.delete_node(CLUSTER, "node-1", grace_s=0.0)
    await bench.until_pod_gone("worker")


async def get(bench: Bench, host: str, path: str, **options: Any) -> tuple[int, str, str]:
    url = f"http://{host}/computeMetadata/v1/{path}"
    async with bench.session.get(url, headers=options.pop("headers", FLAVOR), params=options) as response:
        return response.status, await response.text(), response.headers.get("ETag", "")


async def test_the_metadata_server_knows_its_node(bench: Bench) -> None:
    view = await bench.region.clusters.put_node(CLUSTER, "node-1", a_node(instance="4711"))
    host = view.metadata_host
    assert (await get(bench, host, "instance/name"))[:2] == (200, "node-1")
    assert (await get(bench, host, "instance/id"))[:2] == (200, "4711")
    assert (await get(bench, host, "instance/zone"))[1] == "projects/simulated/zones/us-central1-a"
    assert (await get(bench, host, "project/project-id"))[1] == "simulated"
    assert (await get(bench, host, "instance/maintenance-event"))[1] == "NONE"
    assert "preempted\n" in (await get(bench, host, "instance/"))[1]
    assert (await get(bench, host, "instance/no-such"))[0] == 404
    assert (await get(bench, host, "instance/name", headers={}))[0] == 403
    status, token, _ = await get(bench, host, "instance/service-accounts/default/token")
    assert status == 200 and '"access_token":"sim.' in token


async def test_waiting_for_a_change_ends_with_the_change_or_with_the_time(bench: Bench) -> None:
    view = await bench.region.clusters.put_node(CLUSTER, "node-1", a_node())
    status, value, etag = await get(bench, view.metadata_host, "instance/preempted")
    assert (status, value) == (200, "FALSE")
    waited = await get(bench, view.metadata_host, "instance/preempted", wait_for_change="true", timeout_sec="1")
    assert waited == (200, "FALSE", etag)
    known = await get(
        bench, view.metadata_host, "instance/preempted", wait_for_change="true", timeout_sec="60", last_etag="0"
    )
    assert known[1] == "FALSE"
    waiting = asyncio.create_task(
        get(bench, view.metadata_host, "instance/preempted", wait_for_change="true", last_etag=etag)
    )
    bench.region.clusters.preempt(CLUSTER, "node-1", PreemptRequest(notice_s=5.0))
    async with asyncio.timeout(20.0):
        _, value, changed = await waiting
    assert value == "TRUE" and changed != etag


async def test_ordinary_pods_do_not_see_the_notice(bench: Bench) -> None:
    await bench.node("node-1")
    script = "import os; print(os.environ['GCE_METADATA_HOST'])"
    await bench.pod("ordinary", "python", "-c", script)
    await bench.until_phase("ordinary", "Succeeded")
    host = (await bench.core.read_namespaced_pod_log("ordinary", "default")).strip()
    assert (await get(bench, host, "instance/preempted"))[0] == 404
    assert (await get(bench, host, "project/project-id"))[0] == 200


async def test_a_lost_node_s_metadata_server_is_gone_too() -> None:
    async with a_bench() as bench:
        view = await bench.region.clusters.put_node(CLUSTER, "node-1", a_node())
        await bench.region.clusters.delete_node(CLUSTER, "node-1", grace_s=0.0)
        async with aiohttp.ClientSession() as session:
            bench.session = session
            with pytest.raises(aiohttp.ClientConnectionError):
                await get(bench, view.metadata_host, "instance/name")


async def test_a_drained_node_is_cordoned_and_its_pods_leave_with_their_grace(bench: Bench) -> None:
    await bench.node()
    await bench.pod("listens", "python", "-c", LISTENS, termination_grace_period_seconds=5)
    await bench.until_phase("listens", "Running")
    assert not bench.region.clusters.drain(CLUSTER, "node-1"), "its pod is still leaving"

    async def drained() -> bool:
        return bench.region.clusters.drain(CLUSTER, "node-1")

    await eventual_answer(drained, bool, "the end of the drain")
    node = await eventual_answer(
        lambda: bench.core.read_node("node-1"), lambda found: found.spec.taints, "the taint of the cordon"
    )
    assert node.spec.unschedulable
    assert [taint.key for taint in node.spec.taints] == ["node.kubernetes.io/unschedulable"]
    assert await ready(bench) == "True"


async def test_a_node_that_hangs_is_unknown_and_its_programs_stand_still_until_it_continues(bench: Bench) -> None:
    await bench.node()
    pod = await bench.pod("stubborn", "python", "-c", STUBBORN)
    await bench.until_phase("stubborn", "Running")
    clusters = bench.region.clusters
    await clusters.silence(CLUSTER, "node-1", SilenceRequest(silent=True))
    await eventual_answer(lambda: ready(bench), lambda status: status == "Unknown", "the node controller's verdict")
    assert {state_of(pid) for pid in await processes(pod.metadata.uid)} == {"T"}
    await clusters.silence(CLUSTER, "node-1", SilenceRequest(silent=False))
    assert await ready(bench) == "True"
    assert "T" not in {state_of(pid) for pid in await processes(pod.metadata.uid)}


async def processes(uid: str) -> list[int]:
    found = await asyncio.to_thread(marked_processes)
    return [pid for mark, pids in found.items() if mark.startswith(uid) for pid in pids]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(("labels", "preemptible"), [({"cloud.google.com/gke-spot": "true"}, "TRUE"), ({}, "FALSE")])
async def test_host_maintenance_is_announced_in_the_metadata_of_the_node(
    bench: Bench, labels: dict[str, str], preemptible: str
) -> None:
    view = await bench.region.clusters.put_node(CLUSTER, "node-1", a_node(labels=labels))
    root = f"http://{view.metadata_host}/computeMetadata/v1/instance"
    url = f"{bench.region.url}/region/clusters/{CLUSTER}/nodes/node-1/maintenance"
    async with aiohttp.ClientSession(headers=FLAVOR) as session:

        async def value(path: str) -> str:
            async with session.get(f"{root}/{path}") as answer:
                return await answer.text()

        assert await value("scheduling/preemptible") == preemptible
        assert await value("maintenance-event") == "NONE"
        for event in (MaintenanceEvent.TERMINATE, MaintenanceEvent.NONE):
            async with session.post(url, json={"event": event}) as answer:
                assert answer.status == 200
            assert await value("maintenance-event") == event
        async with session.post(url, json={"event": "SOON"}) as answer:
            assert answer.status == 400
