"""The pure parts: windows of the store, choices of the scheduler, lifecycle and command of a container."""

import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runtime.clock import SystemClock
from simulator.kubelet import records
from simulator.kubelet.images import ImageRuntime, runtime_of
from simulator.kubelet.launch import CannotLaunch, Surroundings, launch_of, substitution
from simulator.kubelet.volumes import make_volumes, mounts_of
from simulator.kubernetes.controllers.actions import Bind
from simulator.kubernetes.controllers.loop import Controllers
from simulator.kubernetes.controllers.scheduler import schedule
from simulator.kubernetes.objects import Key, Obj, key_of
from simulator.kubernetes.patch import MERGE_PATCH
from simulator.kubernetes.problems import ApiProblem
from simulator.kubernetes.resources import (
    BUILT_IN,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    NODES,
    PODS,
    Resource,
)
from simulator.kubernetes.routes import Target
from simulator.kubernetes.server import ApiServer, ServerOptions, Writing
from simulator.kubernetes.store import Store
from tests.simulator_region.conftest import a_pod

NOW = "2026-01-01T00:00:00Z"


def a_store(limit: int = 1000) -> Store:
    return Store(SystemClock(), history_limit=limit)


def a_map(name: str, **data: str) -> Obj:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": data}


steps = st.lists(st.tuples(st.sampled_from("cud"), st.sampled_from("xyz"), st.integers(0, 3)), max_size=30)


@given(steps, st.integers(2, 12))
def test_who_follows_the_history_from_any_version_arrives_at_the_present(walk: Any, limit: int) -> None:
    store = a_store(limit)
    snapshots: dict[int, dict[Key, Obj]] = {store.version: {}}
    for action, name, value in walk:
        key = Key("n", name)
        exists = store.find(CONFIG_MAPS, key) is not None
        if action == "c" and not exists:
            store.create(CONFIG_MAPS, a_map(name, v=str(value)))
        elif action == "u" and exists:
            store.modify(CONFIG_MAPS, key, partial(dict.update, data={"v": str(value)}))
        elif action == "d" and exists:
            store.delete(CONFIG_MAPS, key)
        snapshots[store.version] = {key_of(obj): obj for obj in store.all(CONFIG_MAPS)}
    now = snapshots[store.version]
    history = store.history(CONFIG_MAPS)
    for version, then in snapshots.items():
        changes = history.since(version)
        if version < history.floor:
            continue
        assert changes is not None
        replayed = dict(then)
        for change in changes:
            replayed.pop(key_of(change.object), None)
            if change.type != "DELETED":
                replayed[key_of(change.object)] = change.object
        assert replayed == now
        assert {key_of(obj): obj for obj in store.all_at(CONFIG_MAPS, "", version)} == then


def a_scheduled_pod(name: str, cpu: int, node: str = "") -> Obj:
    container = {"name": "main", "image": "any", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    return {"metadata": {"name": name, "namespace": "n", "creationTimestamp": NOW}, "spec": spec}


def a_ready_node(name: str, cpu: int) -> Obj:
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": {"cpu": str(cpu)}}}


@given(st.lists(st.integers(0, 4), max_size=12), st.lists(st.integers(0, 6), max_size=4))
def test_the_scheduler_never_overfills_a_node_and_leaves_nobody_waiting_without_need(
    needs: list[int], sizes: list[int]
) -> None:
    pods = [a_scheduled_pod(f"p{index}", need) for index, need in enumerate(needs)]
    nodes = [a_ready_node(f"n{index}", size) for index, size in enumerate(sizes)]
    placed = {action.pod.name: action.node for action in schedule(pods, nodes, NOW) if isinstance(action, Bind)}
    used = {node: sum(needs[int(pod[1:])] for pod, at in placed.items() if at == node) for node in placed.values()}
    assert all(used[node] <= sizes[int(node[1:])] for node in used)
    most_free = max((size - used.get(f"n{index}", 0) for index, size in enumerate(sizes)), default=-1)
    assert all(need > most_free for index, need in enumerate(needs) if f"p{index}" not in placed)


def test_restarts_come_at_once_then_later_and_later_up_to_a_limit() -> None:
    assert [records.backoff_s(count, 10.0, 300.0) for count in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_the_policy_says_whether_a_container_runs_again(policy: str, code: int, again: bool) -> None:
    assert records.restarts(policy, code, is_init=False) is again
    assert records.restarts(policy, 0, is_init=True) is False


def test_mounted_paths_become_real_folders_and_nothing_else_does() -> None:
    real = substitution({"/run": Path("/r"), "/run/deep": Path("/d"), "/": Path("/never")})
    assert real("/run") == "/r"
    assert real("/run/x") == "/r/x"
    assert real("/run/deep/x") == "/d/x"
    assert real("--socket=unix:/run/a,/run/deep") == "--socket=unix:/r/a,/d"
    for untouched in ("/runner", "/run.d/x", "/var/run/x", "./run", "run/x", "/running-late"):
        assert real(untouched) == untouched


def a_launch(container: Obj, tmp_path: Path, runtime: ImageRuntime | None = None) -> Any:
    around = Surroundings("node", "127.9.0.1", "127.9.0.2", tmp_path)
    body = a_pod("p")
    body["metadata"] |= {"uid": "u", "namespace": "n"}
    return launch_of(body, {"name": "main", "image": "any", **container}, runtime or ImageRuntime(), around)


def test_python_is_the_interpreter_of_the_image(tmp_path: Path) -> None:
    assert a_launch({"command": ["python", "-V"]}, tmp_path).argv == (sys.executable, "-V")
    other = ImageRuntime(python="/opt/py/bin/python", entrypoint=("python", "-m", "job"))
    launch = a_launch({"args": ["--fast"]}, tmp_path, other)
    assert launch.argv == ("/opt/py/bin/python", "-m", "job", "--fast")
    assert launch.env["PATH"].startswith("/opt/py/bin:")


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    for container, reason in (
        ({}, "RunContainerError"),
        ({"command": ["no-such-program"]}, "StartError"),
        ({"command": ["true"], "workingDir": "/no/such/folder"}, "RunContainerError"),
    ):
        with pytest.raises(CannotLaunch) as caught:
            a_launch(container, tmp_path)
        assert caught.value.reason == reason


def test_images_are_found_by_pattern() -> None:
    special = ImageRuntime(python="/x")
    images = {"registry.example/*/trainer:*": special}
    assert runtime_of("registry.example/team/trainer:1", images) is special
    assert runtime_of("registry.example/team/other:1", images) == ImageRuntime()


scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", "1", "True"])
NAMES = ["name", "key", "value", "spec", "template", "containers", "image", "labels", "type", "status", "effect", "uid"]
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*NAMES, "cpu"]), inner, max_size=3),
    max_leaves=5,
)
PATHS = [
    ("metadata",), ("metadata", "labels"), ("metadata", "finalizers"), ("metadata", "ownerReferences"), ("spec",),
    ("spec", "containers"), ("spec", "template"), ("spec", "selector"), ("spec", "taints"), ("spec", "tolerations"),
    ("spec", "template", "spec"), ("spec", "template", "spec", "containers"), ("spec", "volumes"), ("spec", "names"),
    ("spec", "versions"), ("spec", "group"), ("spec", "replicas"), ("spec", "affinity"), ("spec", "nodeSelector"),
    ("spec", "strategy", "rollingUpdate", "maxSurge"),
    ("status",), ("status", "conditions"), ("status", "allocatable"), ("data",), ("stringData",), ("rules",),
]  # fmt: skip


def a_body(resource: Resource) -> Obj:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m", "image": "i"}]}}
    fields: Obj = {"name": "thing", **({"namespace": "default"} if resource.namespaced else {})}
    if resource.id == PODS.id:
        return {"metadata": fields, "spec": template["spec"]}
    if resource.id == NODES.id:
        return {"metadata": fields, "status": {"allocatable": {"cpu": "1"}}}
    if resource.id == DEFINITIONS.id:
        version = {"name": "v1", "served": True, "storage": True}
        names = {"plural": "things", "kind": "Thing"}
        spec = {"group": "x.dev", "scope": "Namespaced", "names": names, "versions": [version]}
        return {"metadata": {"name": "things.x.dev"}, "spec": spec}
    return {"metadata": fields, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}


@settings(max_examples=200, deadline=None)
@example(BUILT_IN[0], [(("metadata", "finalizers"), [None])])
@given(st.sampled_from(BUILT_IN), st.lists(st.tuples(st.sampled_from(PATHS), junk), min_size=1, max_size=2))
def test_a_body_that_makes_no_sense_is_refused_and_never_breaks_the_server(resource: Resource, spoilt: Any) -> None:
    server = ApiServer(SystemClock(), ServerOptions(), first_version=1)
    body = spoiled(a_body(resource), spoilt)
    try:
        made = server.create(resource, body)
    except ApiProblem as problem:
        assert 400 <= problem.code < 500
    else:
        assert server.store.get(resource, key_of(made)) is not None
    controllers = Controllers("c", server, SystemClock())
    controllers.reconcile()


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([PODS, NODES, DEPLOYMENTS, DAEMON_SETS]),
    st.lists(st.tuples(st.sampled_from([path for path in PATHS if path[0] == "status"]), junk), min_size=1, max_size=3),
)
def test_a_status_that_makes_no_sense_breaks_no_controller(resource: Resource, spoilt: Any) -> None:
    server = ApiServer(SystemClock(), ServerOptions(), first_version=1)
    key = key_of(server.create(resource, a_body(resource)))
    server.create(NODES, {"metadata": {"name": "other"}})
    controllers = Controllers("c", server, SystemClock())
    controllers.reconcile()
    target = Target(resource, resource.version, key.namespace, key.name, "status")
    try:
        server.patch(target, MERGE_PATCH, spoiled({}, spoilt), Writing())
    except ApiProblem as problem:
        assert 400 <= problem.code < 500
    controllers.reconcile()
    assert server.store.find(resource, key) is not None


def spoiled(body: Obj, spoilt: Any) -> Obj:
    for path, value in spoilt:
        part: Any = body
        for name in path[:-1]:
            part = part.setdefault(name, {}) if isinstance(part, dict) else {}
        if isinstance(part, dict):
            part[path[-1]] = value
    return body


SOURCES = ["emptyDir", "hostPath", "secret", "configMap", "projected", "downwardAPI", "persistentVolumeClaim"]
KEYS = [
    "name",
    "key",
    "path",
    "items",
    "sources",
    "fieldRef",
    "fieldPath",
    "optional",
    "secretName",
    "value",
    "valueFrom",
]
KEYS += ["secretKeyRef", "configMapKeyRef", "resourceFieldRef", "resource", "divisor", "mountPath", "subPath", *SOURCES]
leaves = st.sampled_from(["", "x", "a/b", "../up", "/root", "limits.cpu", "metadata.name", "1", True, 7, None])
odd = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)
volumes = st.lists(st.fixed_dictionaries({"name": st.just("x")}, optional=dict.fromkeys(SOURCES, odd)), max_size=2)
container_parts = st.fixed_dictionaries(
    {},
    optional={
        "env": st.lists(st.fixed_dictionaries({"name": st.just("E")}, optional={"value": odd, "valueFrom": odd})) | odd,
        "envFrom": odd,
        "volumeMounts": st.lists(st.fixed_dictionaries({"name": st.just("x"), "mountPath": leaves})) | odd,
        "workingDir": leaves,
        "command": st.lists(leaves, max_size=2) | odd,
        "args": odd,
        "name": leaves,
    },
)


@settings(max_examples=300, deadline=None)
@given(container_parts, volumes | odd)
def test_a_pod_that_the_api_takes_can_be_run_or_says_why_not(parts: Obj, given_volumes: Any) -> None:
    server = ApiServer(SystemClock(), ServerOptions(), first_version=1)
    body = a_pod("p", "true", container=parts, volumes=given_volumes)
    body["metadata"]["namespace"] = "default"
    try:
        pod = server.create(PODS, body)
    except ApiProblem as problem:
        assert 400 <= problem.code < 500
        return
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder, "pod")
        inside.mkdir()
        around = Surroundings("node", "127.9.0.1", "127.9.0.2", inside, secret=a_secret, config_map=lambda name: None)
        try:
            made = make_volumes(pod, inside, inside / "node", around)
            for container in pod["spec"]["containers"]:
                mounts = mounts_of(container, made, None)
                launch_of(pod, container, ImageRuntime(), replace(around, mounts=mounts))
        except CannotLaunch as problem:
            assert problem.reason and str(problem)
        assert [path.name for path in Path(folder).iterdir()] == ["pod"]


def a_secret(name: str) -> Obj | None:
    return {"kind": "Secret", "data": {"x": "eA==", "1": "/w=="}} if name == "x" else None
