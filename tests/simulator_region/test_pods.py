"""Pods as local processes: environment, folders, logs, ends, restarts, grace."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio.watch import Watch

from runtime import children
from simulator.kubelet.images import ImageRuntime, Pull
from simulator.kubelet.processes import marked_processes
from tests.conftest import eventual_answer
from tests.simulator_region.conftest import Bench, a_bench, a_pod, refused

COUNTS_TERMS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), time.sleep(0.1), sys.exit(7)))
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
STRAYS = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("child", child.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
async def bench() -> Any:
    async with a_bench() as made:
        await made.node("node-1")
        yield made


def state_of(pod: Any, container: str = "main") -> Any:
    return next(each for each in pod.status.container_statuses or [] if each.name == container)


def is_running(pid: int) -> bool:
    return children.start_time_of(pid) is not None and any(pid in pids for pids in marked_processes().values())


async def test_a_pod_runs_tells_and_succeeds(bench: Bench) -> None:
    await bench.pod("hello", "python", "-c", "print('hello'); import sys; print('oops', file=sys.stderr)")
    pod = await bench.until_phase("hello", "Succeeded")
    ended = state_of(pod).state.terminated
    assert (ended.exit_code, ended.reason) == (0, "Completed")
    assert pod.spec.node_name == "node-1"
    assert pod.status.pod_ip.startswith("127.") and pod.status.start_time
    log = await bench.core.read_namespaced_pod_log("hello", "default")
    assert sorted(log.splitlines()) == ["hello", "oops"]


async def test_a_pod_fails_with_its_code_or_its_signal(bench: Bench) -> None:
    await bench.pod("fails", "sh", "-c", "exit 3")
    await bench.pod("killed", "sh", "-c", "kill -KILL $$$$")
    await bench.pod("missing", "no-such-program")
    failed = state_of(await bench.until_phase("fails", "Failed")).state.terminated
    assert (failed.exit_code, failed.reason) == (3, "Error")
    killed = state_of(await bench.until_phase("killed", "Failed")).state.terminated
    assert (killed.exit_code, killed.signal) == (128 + signal.SIGKILL, signal.SIGKILL)
    missing = state_of(await bench.until_phase("missing", "Failed")).state.terminated
    assert missing.reason == "StartError" and '"no-such-program"' in missing.message


async def test_the_environment_is_what_the_spec_says(bench: Bench) -> None:
    await bench.core.create_namespaced_secret("default", {"metadata": {"name": "keys"}, "stringData": {"k": "s3cret"}})
    await bench.core.create_namespaced_config_map(
        "default", {"metadata": {"name": "conf"}, "data": {"a": "1", "b": "2"}}
    )
    fields = {"POD": "metadata.name", "NS": "metadata.namespace", "UID": "metadata.uid", "NODE": "spec.nodeName"}
    fields |= {"IP": "status.podIP", "HOST": "status.hostIP", "LABEL": "metadata.labels['app']"}
    env: list[dict[str, Any]] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]
    env += [
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}},
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}},
        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "no", "optional": True}}},
        {"name": "GPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "JOINED", "value": "$(A)-$(POD)-$$(A)-$(UNKNOWN)"},
    ]
    os.environ["OF_THE_SIMULATOR"] = "private"
    container = {
        "env": env,
        "envFrom": [{"prefix": "CONF_", "configMapRef": {"name": "conf"}}],
        "resources": {"limits": {"cpu": "2"}},
        "args": ["$(JOINED)"],
    }
    script = "import os, sys, json; print(json.dumps({'args': sys.argv[1:], **os.environ}))"
    await bench.pod("env", "python", "-c", script, container=container)
    pod = await bench.until_phase("env", "Succeeded")
    log = await bench.core.read_namespaced_pod_log("env", "default", _preload_content=False)
    seen = await log.json(content_type=None)
    assert {name: seen[name] for name in ("POD", "NS", "NODE", "LABEL", "KEY", "A", "GPUS")} == {
        "POD": "env", "NS": "default", "NODE": "node-1", "LABEL": "env", "KEY": "s3cret", "A": "1", "GPUS": "2",
    }  # fmt: skip
    assert (seen["UID"], seen["IP"], seen["HOST"]) == (pod.metadata.uid, pod.status.pod_ip, pod.status.host_ip)
    assert seen["JOINED"] == "1-env-$(A)-$(UNKNOWN)" and seen["args"] == [seen["JOINED"]]
    assert (seen["CONF_a"], seen["CONF_b"]) == ("1", "2")
    assert "NONE" not in seen and "OF_THE_SIMULATOR" not in seen


async def test_containers_share_folders_at_the_paths_they_mount(bench: Bench) -> None:
    await bench.core.create_namespaced_secret("default", {"metadata": {"name": "keys"}, "stringData": {"k": "s3cret"}})
    volumes = [
        {"name": "shared", "emptyDir": {}},
        {"name": "keys", "secret": {"secretName": "keys", "items": [{"key": "k", "path": "deep/key"}]}},
        {"name": "host", "hostPath": {"path": "/run/of-the-node", "type": "DirectoryOrCreate"}},
    ]
    writes = "until [ -e /run/shared/go ]; do sleep 0.05; done; cat /etc/keys/deep/key > $OUT; echo x > /host/mark"
    writer = {
        "name": "writer",
        "image": "any",
        "command": ["sh", "-c", writes],
        "env": [{"name": "OUT", "value": "/run/shared/out"}],
        "volumeMounts": [
            {"name": "shared", "mountPath": "/run/shared"},
            {"name": "keys", "mountPath": "/etc/keys"},
            {"name": "host", "mountPath": "/host"},
        ],
    }
    reads = "touch /data/go; until [ -s /data/out ]; do sleep 0.05; done; cat /data/out; echo /database /data.txt"
    reader: dict[str, Any] = {"name": "reader", "image": "any", "command": ["sh", "-c", reads]}
    reader |= {"volumeMounts": [{"name": "shared", "mountPath": "/data"}]}
    body = a_pod("sharing", volumes=volumes)
    body["spec"]["containers"] = [writer, reader]
    await bench.core.create_namespaced_pod("default", body)
    await bench.until_phase("sharing", "Succeeded")
    log = await bench.core.read_namespaced_pod_log("sharing", "default", container="reader")
    assert log == "s3cret/database /data.txt\n"

    mount = {"volumeMounts": [{"name": "host", "mountPath": "/host"}]}
    await bench.pod("neighbour", "cat", "/host/mark", container=mount, volumes=volumes[2:])
    await bench.until_phase("neighbour", "Succeeded")
    assert await bench.core.read_namespaced_pod_log("neighbour", "default") == "x\n"
    assert not await asyncio.to_thread(Path("/run/of-the-node").exists)


async def test_a_volume_that_is_not_there_yet_is_waited_for(bench: Bench) -> None:
    mount = {"volumeMounts": [{"name": "late", "mountPath": "/late"}]}
    volumes = [{"name": "late", "configMap": {"name": "late"}}]
    await bench.pod("patient", "cat", "/late/word", container=mount, volumes=volumes)

    async def reasons() -> list[str]:
        return [event.reason for event in (await bench.core.list_namespaced_event("default")).items]

    await eventual_answer(reasons, lambda found: "FailedMount" in found, "an event about the missing volume")
    assert (await bench.core.read_namespaced_pod("patient", "default")).status.phase == "Pending"
    await bench.core.create_namespaced_config_map("default", {"metadata": {"name": "late"}, "data": {"word": "here"}})
    await bench.until_phase("patient", "Succeeded")
    assert await bench.core.read_namespaced_pod_log("patient", "default") == "here"


async def test_a_missing_key_and_a_missing_image_keep_a_pod_waiting() -> None:
    async with a_bench(images={"absent/*": ImageRuntime(pull=Pull.MISSING)}) as bench:
        await bench.node("node-1")
        env = [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k"}}}]
        await bench.pod("unkeyed", "true", container={"env": env})
        await bench.pod("unpulled", "true", container={"image": "absent/one:1"})

        def waits(reason: str) -> Any:
            return lambda pod: pod.status.container_statuses and state_of(pod).state.waiting.reason == reason

        await bench.until_pod("unkeyed", waits("CreateContainerConfigError"))
        await bench.until_pod("unpulled", waits("ErrImagePull"))
        await bench.core.create_namespaced_secret("default", {"metadata": {"name": "none"}, "stringData": {"k": "v"}})
        await bench.until_phase("unkeyed", "Succeeded")


async def test_init_containers_go_first_and_one_after_the_other(bench: Bench) -> None:
    mount = [{"name": "work", "mountPath": "/scratch"}]
    commands = ["echo one >> /scratch/order", "echo two >> /scratch/order"]
    init = [
        {"name": f"init-{index}", "image": "any", "command": ["sh", "-c", command], "volumeMounts": mount}
        for index, command in enumerate(commands)
    ]
    await bench.pod(
        "ordered", "cat", "/scratch/order",
        container={"volumeMounts": mount}, initContainers=init, volumes=[{"name": "work", "emptyDir": {}}],
    )  # fmt: skip
    await bench.until_phase("ordered", "Succeeded")
    assert await bench.core.read_namespaced_pod_log("ordered", "default") == "one\ntwo\n"
    await bench.pod("stopped", "true", initContainers=[{"name": "bad", "image": "any", "command": ["false"]}])
    pod = await bench.until_phase("stopped", "Failed")
    assert state_of(pod).state.waiting.reason == "PodInitializing"


async def test_a_container_that_keeps_failing_backs_off_and_comes_again(bench: Bench) -> None:
    await bench.pod("crashes", "sh", "-c", "echo try; exit 1", restartPolicy="Always")

    def backs_off(pod: Any) -> bool:
        found = pod.status.container_statuses
        waiting = state_of(pod).state.waiting if found else None
        return waiting is not None and waiting.reason == "CrashLoopBackOff" and state_of(pod).restart_count >= 2

    pod = await bench.until_pod("crashes", backs_off)
    assert pod.status.phase == "Running"
    assert state_of(pod).last_state.terminated.exit_code == 1
    assert not state_of(pod).ready
    previous = await bench.core.read_namespaced_pod_log("crashes", "default", previous=True)
    assert previous == "try\n"


async def test_on_failure_restarts_only_after_a_failure(bench: Bench) -> None:
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/scratch"}]}
    script = "if [ -e /scratch/seen ]; then exit 0; fi; touch /scratch/seen; exit 1"
    await bench.pod(
        "twice", "sh", "-c", script,
        restartPolicy="OnFailure", container=mount, volumes=[{"name": "work", "emptyDir": {}}],
    )  # fmt: skip
    pod = await bench.until_phase("twice", "Succeeded")
    assert state_of(pod).restart_count == 1


async def test_deletion_gives_time_and_the_first_process_alone_is_told(bench: Bench) -> None:
    await bench.pod("polite", "python", "-c", COUNTS_TERMS, terminationGracePeriodSeconds=20)
    await bench.until_log("polite", "up")
    async with bench.watching(bench.core.list_namespaced_pod, namespace="default", timeout_seconds=20) as seen:
        await seen.until(("ADDED", "polite"))
        deleting = await bench.core.delete_namespaced_pod("polite", "default")
        assert deleting.metadata.deletion_grace_period_seconds == 20
        await seen.until(("DELETED", "polite"))
    states = [raw["status"]["containerStatuses"][0]["state"] for raw in seen.raw]
    assert states[-1]["terminated"]["exitCode"] == 7


async def test_who_does_not_listen_is_killed_after_the_grace(bench: Bench) -> None:
    await bench.pod("stubborn", "python", "-c", STUBBORN)
    await bench.until_log("stubborn", "up")
    pids = [pid for node in bench.region.clusters.nodes("tests") for pod in node.pods for pid in pod["pids"].values()]
    await bench.core.delete_namespaced_pod("stubborn", "default", grace_period_seconds=1)
    await bench.until_log("stubborn", "told")
    await bench.until_pod_gone("stubborn")
    assert pids and not any(is_running(pid) for pid in pids)


async def test_a_forced_deletion_ends_the_processes_too(bench: Bench) -> None:
    await bench.pod("forced", "python", "-c", STUBBORN)
    await bench.until_log("forced", "up")
    deleted = await bench.core.delete_namespaced_pod("forced", "default", grace_period_seconds=0)
    assert (await bench.core.list_namespaced_pod("default")).items == []
    mark = f"{deleted.metadata.uid}/main"
    await eventual_answer(_marked, lambda marks: mark not in marks, "the end of its processes")


async def test_what_a_container_leaves_behind_ends_with_it(bench: Bench) -> None:
    await bench.pod("strays", "python", "-c", STRAYS, "0.2")
    await bench.until_phase("strays", "Succeeded")
    child = int((await bench.core.read_namespaced_pod_log("strays", "default")).split()[1])
    assert not is_running(child)


async def test_logs_are_followed_to_their_end_and_cut_to_their_tail(bench: Bench) -> None:
    script = "for i in 1 2 3 4 5; do echo line $i; sleep 0.05; done"
    await bench.pod("talks", "sh", "-c", script)
    await bench.until_log("talks", "line 1")
    async with Watch() as watch:
        follow = watch.stream(bench.core.read_namespaced_pod_log, name="talks", namespace="default")
        lines = [line.strip() async for line in follow]
    assert lines == [f"line {number}" for number in range(1, 6)]
    tail = await bench.core.read_namespaced_pod_log("talks", "default", tail_lines=2)
    assert tail == "line 4\nline 5\n"
    with refused(400, "is not valid for pod"):
        await bench.core.read_namespaced_pod_log("talks", "default", container="other")


async def test_a_pod_speaks_to_the_api_with_its_own_rights(bench: Bench) -> None:
    await bench.core.create_namespaced_service_account("default", {"metadata": {"name": "reader"}})
    role = {"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}
    await bench.roles.create_namespaced_role("default", role)
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    }
    await bench.roles.create_namespaced_role_binding("default", binding)
    script = """
import asyncio
from kubernetes_asyncio import client, config
async def ask():
    await config.load_kube_config()
    async with client.ApiClient() as api:
        core = client.CoreV1Api(api)
        print("pods", len((await core.list_namespaced_pod("default")).items))
        for refused in (core.list_namespaced_secret("default"), core.list_node()):
            try:
                await refused
            except client.ApiException as problem:
                print("refused", problem.status)
asyncio.run(ask())
"""
    await bench.pod("asks", "python", "-c", script, serviceAccountName="reader")
    await bench.until_phase("asks", "Succeeded")
    log = await bench.core.read_namespaced_pod_log("asks", "default")
    assert log.splitlines() == ["pods 1", "refused 403", "refused 403"]


async def test_a_pod_s_token_is_replaced_before_it_expires() -> None:
    async with a_bench(token_s=0.6) as bench:
        await bench.node("node-1")
        script = "cat /var/run/secrets/kubernetes.io/serviceaccount/token; echo; sleep 0.1"
        await bench.pod("renewed", "sh", "-c", f"while true; do {script}; done")

        async def tokens() -> set[str]:
            log = await bench.until_log("renewed", "simsa")
            return set(log.split())

        await eventual_answer(tokens, lambda seen: len(seen) >= 3, "three different tokens")


async def test_nothing_runs_on_when_the_region_ends() -> None:
    async with a_bench() as bench:
        await bench.node("node-1")
        strays = await bench.pod("strays", "python", "-c", STRAYS, "600")
        log = await bench.until_log("strays", "child")
        child = int(log.split()[1])
        stubborn = await bench.pod("stubborn", "python", "-c", STUBBORN)
        await bench.until_log("stubborn", "up")
        marks = {f"{pod.metadata.uid}/main" for pod in (strays, stubborn)}
        assert marks <= await _marked() and is_running(child)
    assert not is_running(child)
    assert not marks & await _marked()


async def _marked() -> set[str]:
    return set(await asyncio.to_thread(marked_processes))


async def test_many_pods_run_at_once(bench: Bench) -> None:
    names = [f"many-{index}" for index in range(25)]
    await asyncio.gather(*(bench.pod(name, "sh", "-c", "echo $HOSTNAME; sleep 0.1") for name in names))
    for name in names:
        await bench.until_phase(name, "Succeeded")
    addresses = {pod.status.pod_ip for pod in (await bench.core.list_namespaced_pod("default")).items}
    assert len(addresses) == 25
    with pytest.raises(kubernetes.ApiException):
        await bench.pod("many-0")
