"""Custom resources: defined, then served like built-in ones."""

from typing import Any

import pytest
from kubernetes_asyncio import client as kubernetes

from tests.simulator_region.conftest import Bench, refused

GROUP, VERSION, PLURAL = "tradewind.dev", "v1", "voyages"
MERGE = "application/merge-patch+json"


def a_definition() -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["port"],
        "properties": {
            "port": {"type": "string"},
            "crew": {"type": "integer", "minimum": 1, "default": 3},
            "sail": {"type": "string", "enum": ["full", "reefed"]},
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    version = {"name": VERSION, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    names = {"plural": PLURAL, "singular": "voyage", "kind": "Voyage", "shortNames": ["vo"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def a_voyage(name: str, **spec: Any) -> dict[str, Any]:
    fields = {"name": name, "labels": {"ship": name}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Voyage",
        "metadata": fields,
        "spec": {"port": "Bergen", **spec},
    }


@pytest.fixture
async def defined(bench: Bench) -> Bench:
    made = await bench.definitions.create_custom_resource_definition(a_definition())
    assert {each.type: each.status for each in made.status.conditions}["Established"] == "True"
    return bench


async def test_instances_live_as_other_objects_do(defined: Bench) -> None:
    custom = defined.custom
    made = await custom.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, a_voyage("one"))
    assert made["spec"] == {"port": "Bergen", "crew": 3}
    await custom.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, a_voyage("two"))
    found = await custom.list_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, label_selector="ship=two")
    assert [each["metadata"]["name"] for each in found["items"]] == ["two"]
    assert found["kind"] == "VoyageList"
    patched = await custom.patch_namespaced_custom_object(
        GROUP, VERSION, "default", PLURAL, "one", {"spec": {"crew": 5}}, _content_type=MERGE
    )
    assert (patched["spec"]["crew"], patched["metadata"]["generation"]) == (5, 2)
    await custom.delete_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, "one")
    with refused(404):
        await custom.get_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, "one")


async def test_status_and_spec_are_written_apart(defined: Bench) -> None:
    custom = defined.custom
    await custom.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, a_voyage("one"))
    whole = await custom.patch_namespaced_custom_object(
        GROUP, VERSION, "default", PLURAL, "one", {"status": {"phase": "sunk"}}, _content_type=MERGE
    )
    assert "status" not in whole
    status = await custom.patch_namespaced_custom_object_status(
        GROUP,
        VERSION,
        "default",
        PLURAL,
        "one",
        {"status": {"phase": "at sea"}, "spec": {"crew": 99}},
        _content_type=MERGE,
    )
    assert status["status"] == {"phase": "at sea"}
    assert (status["spec"]["crew"], status["metadata"]["generation"]) == (3, 1)


async def test_the_schema_is_kept(defined: Bench) -> None:
    custom = defined.custom
    for spec, words in (
        ({"port": 7}, "must be of type string"),
        ({"crew": 0}, "greater than or equal to 1"),
        ({"sail": "torn"}, "supported values"),
    ):
        with refused(422, words):
            await custom.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, a_voyage("bad", **spec))
    missing = a_voyage("none")
    del missing["spec"]["port"]
    with refused(422, "spec.port: Required value"):
        await custom.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, missing)
    made = await custom.create_namespaced_custom_object(
        GROUP, VERSION, "default", PLURAL, a_voyage("pruned", unheard_of=True)
    )
    assert "unheard_of" not in made["spec"]


async def test_a_strategic_patch_of_a_custom_resource_is_not_supported(defined: Bench) -> None:
    await defined.custom.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, a_voyage("one"))
    with refused(415):
        await defined.custom.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            "default",
            PLURAL,
            "one",
            {"spec": {"crew": 5}},
            _content_type="application/strategic-merge-patch+json",
        )


async def test_instances_are_watched(defined: Bench) -> None:
    options = {"group": GROUP, "version": VERSION, "namespace": "default", "plural": PLURAL}
    async with defined.watching(defined.custom.list_namespaced_custom_object, **options) as seen:
        await defined.custom.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, a_voyage("one"))
        await seen.until(("ADDED", "one"))
    assert seen.raw[0]["kind"] == "Voyage"


async def test_the_end_of_a_definition_is_the_end_of_its_instances(defined: Bench) -> None:
    await defined.custom.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, a_voyage("one"))
    await defined.definitions.delete_custom_resource_definition(f"{PLURAL}.{GROUP}")
    with refused(404):
        await defined.custom.list_namespaced_custom_object(GROUP, VERSION, "default", PLURAL)
    await defined.definitions.create_custom_resource_definition(a_definition())
    found = await defined.custom.list_namespaced_custom_object(GROUP, VERSION, "default", PLURAL)
    assert found["items"] == []


async def test_a_definition_with_another_name_than_its_kinds_is_refused(bench: Bench) -> None:
    body = a_definition()
    body["metadata"]["name"] = "boats.tradewind.dev"
    with pytest.raises(kubernetes.ApiException) as caught:
        await bench.definitions.create_custom_resource_definition(body)
    assert caught.value.status == 422
