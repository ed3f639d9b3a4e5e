"""Objects through the client of kubernetes-asyncio: create, read, change, conflict, select, list, delete."""

import base64
from typing import Any

from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio.dynamic import DynamicClient

from simulator.region.settings import ClusterRequest
from tests.conftest import eventual_answer
from tests.simulator_region.conftest import Bench, a_bench, a_pod, refused

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


def a_map(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


async def test_a_config_map_is_made_read_replaced_and_deleted(bench: Bench) -> None:
    made = await bench.core.create_namespaced_config_map("default", a_map("colours", sky="blue"))
    assert made.metadata.uid and made.metadata.creation_timestamp and int(made.metadata.resource_version) > 0

    made.data["sky"] = "grey"
    replaced = await bench.core.replace_namespaced_config_map("colours", "default", made)
    read = await bench.core.read_namespaced_config_map("colours", "default")
    assert read.data == {"sky": "grey"}
    assert read.metadata.uid == made.metadata.uid
    assert int(read.metadata.resource_version) == int(replaced.metadata.resource_version)

    status = await bench.core.delete_namespaced_config_map("colours", "default")
    assert status.status == "Success"
    with refused(404, '"reason":"NotFound"'):
        await bench.core.read_namespaced_config_map("colours", "default")


async def test_who_writes_second_from_an_old_state_gets_a_conflict(bench: Bench) -> None:
    first = await bench.core.create_namespaced_config_map("default", a_map("shared", owner="nobody"))
    second = await bench.core.read_namespaced_config_map("shared", "default")
    first.data["owner"] = "one"
    await bench.core.replace_namespaced_config_map("shared", "default", first)
    second.data["owner"] = "two"
    with refused(409, '"reason":"Conflict"'):
        await bench.core.replace_namespaced_config_map("shared", "default", second)
    assert (await bench.core.read_namespaced_config_map("shared", "default")).data == {"owner": "one"}


async def test_a_write_that_changes_nothing_makes_no_new_version(bench: Bench) -> None:
    made = await bench.core.create_namespaced_config_map("default", a_map("still", a="b"))
    again = await bench.core.patch_namespaced_config_map("still", "default", {"data": {"a": "b"}})
    assert again.metadata.resource_version == made.metadata.resource_version


async def test_the_same_name_twice_is_refused_and_generated_names_differ(bench: Bench) -> None:
    await bench.core.create_namespaced_config_map("default", a_map("once"))
    with refused(409, '"reason":"AlreadyExists"'):
        await bench.core.create_namespaced_config_map("default", a_map("once"))
    body = {"metadata": {"generateName": "many-"}}
    names = {(await bench.core.create_namespaced_config_map("default", body)).metadata.name for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("many-") and len(name) == len("many-") + 5 for name in names)


async def test_what_cannot_be_is_refused_as_a_real_server_does(bench: Bench) -> None:
    with refused(404, 'namespaces \\"nowhere\\" not found'):
        await bench.core.create_namespaced_config_map("nowhere", a_map("lost"))
    with refused(422, "metadata.name"):
        await bench.core.create_namespaced_config_map("default", {"data": {}})
    with refused(422, "RFC 1123"):
        await bench.core.create_namespaced_config_map("default", a_map("Not_A_Name"))
    with refused(400, "namespace of the provided object"):
        body = {"metadata": {"name": "x", "namespace": "kube-system"}}
        await bench.core.create_namespaced_config_map("default", body)
    with refused(422, "spec.containers: Required value"):
        await bench.core.create_namespaced_pod("default", {"metadata": {"name": "empty"}, "spec": {}})
    with refused(422, "spec.containers[0].volumeMounts[0].name: Not found"):
        mount = {"volumeMounts": [{"name": "no-such", "mountPath": "/x"}]}
        await bench.core.create_namespaced_pod("default", a_pod("mounts", container=mount))
    with refused(403, 'serviceaccount \\"stranger\\" not found'):
        await bench.core.create_namespaced_pod("default", a_pod("stray", serviceAccountName="stranger"))
    with refused(400, "unable to parse requirement"):
        await bench.core.list_namespaced_pod("default", label_selector="a=b=c")
    with refused(400, "field label not supported"):
        await bench.core.list_namespaced_pod("default", field_selector="spec.colour=red")
    with refused(422, "is forbidden unless resourceVersion is provided"):
        await bench.core.list_namespaced_pod("default", resource_version_match="Exact")
    with refused(422, "propagationPolicy: Unsupported value"):
        await bench.core.delete_namespaced_pod("any", "default", propagation_policy="Sideways")
    with refused(422, "dryRun: Unsupported value"):
        await bench.core.create_namespaced_config_map("default", a_map("dry"), dry_run="Some")
    with refused(422, "neither a standard finalizer name nor is it fully qualified"):
        await bench.core.create_namespaced_config_map("default", {"metadata": {"name": "x", "finalizers": ["hold"]}})
    with refused(422, "may not specify a duration less than 10 minutes"):
        await bench.core.create_namespaced_service_account_token(
            "default", "default", {"spec": {"expirationSeconds": 5}}
        )


async def test_a_pod_keeps_its_spec_but_may_change_its_image(bench: Bench) -> None:
    await bench.pod("fixed")
    with refused(422, "pod updates may not change fields"):
        patch = {"spec": {"containers": [{"name": "main", "command": ["true"]}]}}
        await bench.core.patch_namespaced_pod("fixed", "default", patch)
    patched = await bench.core.patch_namespaced_pod(
        "fixed", "default", {"spec": {"containers": [{"name": "main", "image": "newer"}]}}
    )
    assert patched.spec.containers[0].image == "newer"
    assert patched.spec.containers[0].command == ["sleep", "600"]
    assert patched.metadata.generation == 2


async def test_lists_choose_by_labels_and_fields(bench: Bench) -> None:
    for name, labels in (("a", {"tier": "web"}), ("b", {"tier": "db"}), ("c", {"tier": "db", "old": ""}), ("d", {})):
        await bench.core.create_namespaced_config_map("default", a_map(name, labels))

    async def chosen(**options: str) -> list[str]:
        found = await bench.core.list_namespaced_config_map("default", **options)
        return [each.metadata.name for each in found.items if each.metadata.name != "kube-root-ca.crt"]

    assert await chosen(label_selector="tier=db") == ["b", "c"]
    assert await chosen(label_selector="tier!=db") == ["a", "d"]
    of_two_tiers = "tier in (web, db),!old"
    assert await chosen(label_selector=of_two_tiers) == ["a", "b"]
    assert await chosen(label_selector="old") == ["c"]
    assert await chosen(field_selector="metadata.name=b") == ["b"]
    assert await chosen(field_selector="metadata.name!=b", label_selector="tier") == ["a", "c"]


async def test_pods_are_found_by_node_and_phase(bench: Bench) -> None:
    await bench.node("node-1")
    await bench.pod("one", "true")
    await bench.until_phase("one", "Succeeded")
    await bench.pod("two", nodeSelector={"no": "such"})
    found = await bench.core.list_pod_for_all_namespaces(field_selector="spec.nodeName=node-1,status.phase=Succeeded")
    assert [pod.metadata.name for pod in found.items] == ["one"]
    waiting = await bench.core.list_pod_for_all_namespaces(field_selector="spec.nodeName=")
    assert [pod.metadata.name for pod in waiting.items] == ["two"]


async def test_pages_show_one_moment_though_the_world_moves_on(bench: Bench) -> None:
    for index in range(7):
        await bench.core.create_namespaced_config_map("default", a_map(f"m{index}", {"paged": "yes"}))
    seen: list[str] = []
    page, moments = None, set()
    while page != "":
        options: dict[str, str] = {"_continue": page} if page else {}
        found = await bench.core.list_namespaced_config_map("default", label_selector="paged", limit=3, **options)
        seen += [each.metadata.name for each in found.items]
        moments.add(found.metadata.resource_version)
        if page is None:
            await bench.core.delete_namespaced_config_map("m5", "default")
            await bench.core.create_namespaced_config_map("default", a_map("m9", {"paged": "yes"}))
        page = found.metadata._continue or ""
    assert seen == [f"m{index}" for index in range(7)]
    assert len(moments) == 1


async def test_a_page_that_comes_too_late_is_gone(bench: Bench) -> None:
    for index in range(3):
        await bench.core.create_namespaced_config_map("default", a_map(f"m{index}"))
    found = await bench.core.list_namespaced_config_map("default", limit=1)
    await bench.core.create_namespaced_config_map("default", a_map("later"))
    bench.region.clusters.compact("tests")
    with refused(410, '"reason":"Expired"'):
        await bench.core.list_namespaced_config_map("default", limit=1, _continue=found.metadata._continue)


async def test_patches_of_all_kinds_change_what_they_name(bench: Bench) -> None:
    await bench.core.create_namespaced_config_map("default", a_map("patched", {"keep": "me"}, a="1", b="2"))
    operations = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/a", "value": "9"}]
    by_json = await bench.core.patch_namespaced_config_map("patched", "default", operations)
    assert by_json.data == {"a": "9", "b": "2"}
    by_merge = await bench.core.patch_namespaced_config_map(
        "patched", "default", {"data": {"b": None, "c": "3"}}, _content_type=MERGE
    )
    assert by_merge.data == {"a": "9", "c": "3"}
    assert by_merge.metadata.labels == {"keep": "me"}
    with refused(422, "the server rejected our request"):
        await bench.core.patch_namespaced_config_map(
            "patched", "default", [{"op": "test", "path": "/data/a", "value": "1"}]
        )


async def test_a_node_s_status_is_changed_without_touching_its_spec(bench: Bench) -> None:
    await bench.node("node-1")
    pressure = {"type": "GpuPressure", "status": "True", "reason": "Hot"}
    body = {"status": {"conditions": [pressure]}, "spec": {"unschedulable": True}}
    node = await bench.core.patch_node_status("node-1", body)
    assert {each.type: each.status for each in node.status.conditions}["GpuPressure"] == "True"
    assert {each.type: each.status for each in node.status.conditions}["Ready"] == "True"
    assert node.spec.unschedulable is None
    node = await bench.core.patch_node("node-1", {"spec": {"unschedulable": True}, "status": {"phase": "gone"}})
    assert node.spec.unschedulable is True
    assert node.status.phase is None


async def test_applying_is_idempotent_and_drops_what_is_no_longer_applied(bench: Bench) -> None:
    def wanted(*variables: str) -> dict[str, Any]:
        env = [{"name": name, "value": "x"} for name in variables]
        container = {"name": "main", "image": "any", "command": ["sleep", "600"], "env": env}
        labels = {"app": "applied"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "applied"}, "spec": spec}

    async def apply(body: dict[str, Any], manager: str = "bootstrap", **options: Any) -> Any:
        return await bench.apps.patch_namespaced_deployment(
            "applied", "default", body, field_manager=manager, _content_type=APPLY, **options
        )

    first = await apply(wanted("A", "B"))
    await eventual_answer(lambda: bench.apps.read_namespaced_deployment("applied", "default"), _observed, "its status")
    generation = (await apply(wanted("A", "B"))).metadata.generation
    assert generation == first.metadata.generation == 1

    changed = await apply(wanted("B", "C"))
    assert [each.name for each in changed.spec.template.spec.containers[0].env] == ["B", "C"]
    assert changed.metadata.generation == 2

    await bench.apps.patch_namespaced_deployment("applied", "default", {"spec": {"replicas": 1}})
    with refused(409, "conflict"):
        await apply(wanted("B", "C"))
    forced = await apply(wanted("B", "C"), force=True)
    assert forced.spec.replicas == 0


def _observed(deployment: Any) -> bool:
    return bool(deployment.status.observed_generation == deployment.metadata.generation)


async def test_an_object_with_a_finalizer_stays_until_it_is_released(bench: Bench) -> None:
    body = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    await bench.core.create_namespaced_config_map("default", body)
    await bench.core.delete_namespaced_config_map("held", "default")
    held = await bench.core.read_namespaced_config_map("held", "default")
    assert held.metadata.deletion_timestamp is not None
    await bench.core.patch_namespaced_config_map(
        "held", "default", {"metadata": {"finalizers": None}}, _content_type=MERGE
    )
    with refused(404):
        await bench.core.read_namespaced_config_map("held", "default")


async def test_deleting_with_a_precondition_spares_a_successor(bench: Bench) -> None:
    made = await bench.core.create_namespaced_config_map("default", a_map("same"))
    await bench.core.delete_namespaced_config_map("same", "default")
    await bench.core.create_namespaced_config_map("default", a_map("same"))
    options = kubernetes.V1DeleteOptions(preconditions=kubernetes.V1Preconditions(uid=made.metadata.uid))
    with refused(409, "does not match the UID in record"):
        await bench.core.delete_namespaced_config_map("same", "default", body=options)


async def test_what_an_object_owns_goes_with_it_unless_it_is_orphaned(bench: Bench) -> None:
    async def family(name: str) -> Any:
        owner = await bench.core.create_namespaced_config_map("default", a_map(name))
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.metadata.uid}
        body = {"metadata": {"name": f"{name}-child", "ownerReferences": [reference]}}
        await bench.core.create_namespaced_config_map("default", body)

    async def names() -> set[str]:
        return {each.metadata.name for each in (await bench.core.list_namespaced_config_map("default")).items}

    for name in ("background", "foreground", "orphan"):
        await family(name)
        await bench.core.delete_namespaced_config_map(name, "default", propagation_policy=name.capitalize())
    expected = {"orphan-child", "kube-root-ca.crt"}
    await eventual_answer(names, lambda found: found == expected, "only the orphan is left")


async def test_a_namespace_ends_with_everything_in_it(bench: Bench) -> None:
    await bench.core.create_namespace({"metadata": {"name": "short"}})
    await bench.core.create_namespaced_config_map("short", a_map("inside"))
    body = {"metadata": {"name": "holding", "finalizers": ["example.com/hold"]}}
    await bench.core.create_namespaced_config_map("short", body)
    await bench.core.delete_namespace("short")
    assert (await bench.core.read_namespace("short")).status.phase == "Terminating"
    with refused(403, "NamespaceTerminating"):
        await bench.core.create_namespaced_config_map("short", a_map("late"))
    await bench.core.patch_namespaced_config_map(
        "holding", "short", {"metadata": {"finalizers": None}}, _content_type=MERGE
    )

    async def names() -> list[str]:
        return [each.metadata.name for each in (await bench.core.list_namespace()).items]

    await eventual_answer(names, lambda found: "short" not in found, "the end of the namespace")
    assert not (await bench.core.list_config_map_for_all_namespaces(field_selector="metadata.namespace=short")).items


async def test_secrets_leases_services_and_collections_behave(bench: Bench) -> None:
    secret = await bench.core.create_namespaced_secret(
        "default", {"metadata": {"name": "s"}, "stringData": {"password": "swordfish"}}
    )
    assert base64.b64decode(secret.data["password"]) == b"swordfish"
    lease = await bench.leases.create_namespaced_lease(
        "default", {"metadata": {"name": "lead"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 3}}
    )
    assert lease.spec.holder_identity == "me"
    service = await bench.core.create_namespaced_service(
        "default", {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    )
    assert service.spec.cluster_ip
    for index in range(3):
        await bench.core.create_namespaced_config_map("default", a_map(f"c{index}", {"batch": "x"}))
    await bench.core.delete_collection_namespaced_config_map("default", label_selector="batch=x")
    left = await bench.core.list_namespaced_config_map("default", label_selector="batch=x")
    assert left.items == []


async def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    shown = await bench.core.create_namespaced_config_map("default", a_map("dry"), dry_run="All")
    assert shown.metadata.uid
    with refused(404):
        await bench.core.read_namespaced_config_map("dry", "default")


async def test_the_dynamic_client_discovers_and_uses_what_is_served(bench: Bench, tmp_path: Any) -> None:
    async with DynamicClient(bench.api, cache_file=str(tmp_path / "discovery.json")) as dynamic:
        maps = await dynamic.resources.get(api_version="v1", kind="ConfigMap")
        await maps.create(body=a_map("dynamic", x="y"), namespace="default")
        assert (await maps.get(name="dynamic", namespace="default")).data.x == "y"
        deployments = await dynamic.resources.get(api_version="apps/v1", kind="Deployment")
        assert deployments.namespaced is True
        body = {"apiVersion": "v1", "kind": "ConfigMap", **a_map("dynamic", x="z")}
        await maps.server_side_apply(body=body, namespace="default", field_manager="me", force_conflicts=True)
        assert (await maps.get(name="dynamic", namespace="default")).data.x == "z"


async def test_a_bare_api_server_makes_and_places_nothing() -> None:
    async with a_bench(ClusterRequest(controllers=False)) as bench:
        await bench.core.create_namespace({"metadata": {"name": "bare"}})
        with refused(403, 'serviceaccount \\"default\\" not found'):
            await bench.core.create_namespaced_pod("bare", a_pod("early"))
        await bench.core.create_namespaced_service_account("bare", {"metadata": {"name": "default"}})
        await bench.core.create_namespaced_pod("bare", a_pod("waits"))
        labels = {"topology.kubernetes.io/zone": "us-central1-a", "others": "stay"}
        node = await bench.core.create_node({"metadata": {"name": "made-up", "labels": labels}})
        assert [(taint.key, taint.effect) for taint in node.spec.taints] == [
            ("node.kubernetes.io/not-ready", "NoSchedule")
        ]
        target = kubernetes.V1Binding(
            metadata=kubernetes.V1ObjectMeta(name="waits"),
            target=kubernetes.V1ObjectReference(kind="Node", name="made-up"),
        )
        await bench.core.create_namespaced_pod_binding("waits", "bare", target, _preload_content=False)
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        pod = await bench.core.patch_namespaced_pod_status("waits", "bare", status)
        assert (pod.spec.node_name, pod.status.phase) == ("made-up", "Running")
        assert pod.metadata.labels == {"app": "waits", "topology.kubernetes.io/zone": "us-central1-a"}
        assert pod.metadata.generation == 1
        deleting = await bench.core.delete_namespaced_pod("waits", "bare")
        assert deleting.metadata.deletion_grace_period_seconds == 5
        await bench.core.delete_namespaced_pod("waits", "bare", grace_period_seconds=0)
        assert (await bench.core.list_namespaced_pod("bare")).items == []


async def test_who_does_not_say_who_they_are_may_do_nothing(bench: Bench) -> None:
    cannot = {
        "api/v1/namespaces/default/pods": 'User "system:anonymous" cannot list resource "pods"',
        "apis": 'User "system:anonymous" cannot get path "/apis"',
    }
    for path, words in cannot.items():
        async with bench.session.get(f"{bench.api.configuration.host}/{path}") as response:
            assert response.status == 403
            assert words in (await response.json())["message"]


async def test_versions_and_health_are_open_to_everybody(bench: Bench) -> None:
    version = await kubernetes.VersionApi(bench.api).get_code()
    assert version.major == "1"
    for path in ("healthz", "livez", "readyz"):
        async with bench.session.get(f"{bench.api.configuration.host}/{path}") as response:
            assert (response.status, await response.text()) == (200, "ok")
    groups = await kubernetes.ApisApi(bench.api).get_api_versions()
    assert {"apps", "coordination.k8s.io", "apiextensions.k8s.io"} <= {group.name for group in groups.groups}
