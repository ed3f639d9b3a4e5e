"""Patches, selectors and quantities by themselves."""

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kubernetes import quantities, selectors
from simulator.kubernetes.apply import APPLY, Manager, apply
from simulator.kubernetes.fields import fields_of, from_fields_v1, to_fields_v1
from simulator.kubernetes.merging import built_in_lists, custom_lists
from simulator.kubernetes.objects import clone
from simulator.kubernetes.patch import json_patch, merge_patch, strategic_patch
from simulator.kubernetes.problems import ApiProblem

NOW = "2026-01-01T00:00:00Z"
texts = st.text("abc", min_size=1, max_size=2)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(texts, values, max_size=3)


def a_deployment(**containers: str) -> dict[str, Any]:
    listed = [{"name": name, "image": image} for name, image in containers.items()]
    return {"metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": listed}}}}


def images(deployment: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["image"] for each in deployment["spec"]["template"]["spec"]["containers"]}


def test_a_strategic_patch_merges_containers_by_name() -> None:
    patched = strategic_patch(a_deployment(a="1", b="1"), a_deployment(b="2", c="2"))
    assert images(patched) == {"a": "1", "b": "2", "c": "2"}


def test_a_strategic_patch_deletes_and_replaces_when_told() -> None:
    patch = a_deployment()
    patch["spec"]["template"]["spec"]["containers"] = [{"name": "a", "$patch": "delete"}]
    assert images(strategic_patch(a_deployment(a="1", b="1"), patch)) == {"b": "1"}
    patch["spec"]["template"]["spec"]["containers"] = [{"$patch": "replace"}, {"name": "z", "image": "9"}]
    assert images(strategic_patch(a_deployment(a="1", b="1"), patch)) == {"z": "9"}
    held = {"metadata": {"finalizers": ["x", "y"]}}
    assert strategic_patch(held, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}) == {
        "metadata": {"finalizers": ["y"]}
    }
    assert strategic_patch(held, {"metadata": {"finalizers": ["y", "z"]}})["metadata"]["finalizers"] == ["x", "y", "z"]


def test_taints_are_replaced_as_a_whole_and_conditions_by_type() -> None:
    node = {"spec": {"taints": [{"key": "a"}]}, "status": {"conditions": [{"type": "Ready", "status": "True", "x": 1}]}}
    patch = {"spec": {"taints": [{"key": "b"}]}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    patched = strategic_patch(node, patch)
    assert patched["spec"]["taints"] == [{"key": "b"}]
    assert patched["status"]["conditions"] == [{"type": "Ready", "status": "False", "x": 1}]


@given(documents, documents)
def test_a_merge_patch_applied_twice_is_applied_once(target: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(documents, documents)
def test_patching_leaves_the_original_alone(target: dict[str, Any], patch: dict[str, Any]) -> None:
    before = clone(target)
    merge_patch(target, patch)
    strategic_patch(target, patch)
    json_patch(target, [{"op": "add", "path": "/new", "value": patch}])
    assert target == before


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/list/1", "value": 9}, {"a/b": 1, "list": [1, 9, 2]}),
        ({"op": "add", "path": "/list/-", "value": 9}, {"a/b": 1, "list": [1, 2, 9]}),
        ({"op": "remove", "path": "/list/0"}, {"a/b": 1, "list": [2]}),
        ({"op": "replace", "path": "/a~1b", "value": 5}, {"a/b": 5, "list": [1, 2]}),
        ({"op": "move", "from": "/a~1b", "path": "/c"}, {"c": 1, "list": [1, 2]}),
        ({"op": "copy", "from": "/list", "path": "/c"}, {"a/b": 1, "c": [1, 2], "list": [1, 2]}),
    ],
)
def test_json_patch_does_what_the_standard_says(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    assert json_patch({"a/b": 1, "list": [1, 2]}, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "/none/deeper", "value": 1},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "test", "path": "/list/0", "value": 2},
        {"op": "dance", "path": "/list"},
        {"op": "add", "path": "list", "value": 1},
        {"path": "/list"},
        "remove",
    ],
)
def test_json_patch_refuses_what_cannot_be(operation: Any) -> None:
    with pytest.raises(ApiProblem):
        json_patch({"list": [1, 2]}, [operation])


def test_two_managers_share_an_object_and_each_takes_only_its_own_away() -> None:
    one, two = Manager("one", APPLY), Manager("two", APPLY)
    base = {"metadata": {"name": "web"}}
    version = {"apiVersion": "apps/v1"}

    def applied(live: dict[str, Any], config: dict[str, Any], who: Manager) -> dict[str, Any]:
        return apply(live, {**version, **config}, who, force=False, lists=built_in_lists, now=NOW)

    live = applied(base, a_deployment(a="1", b="1"), one)
    live = applied(live, a_deployment(b="1", c="1"), two)
    live = applied(live, a_deployment(a="2"), one)
    assert images(live) == {"a": "2", "b": "1", "c": "1"}
    live = applied(live, a_deployment(c="1"), two)
    assert images(live) == {"a": "2", "c": "1"}
    with pytest.raises(ApiProblem, match='conflict with "one": '):
        applied(live, a_deployment(a="9", c="1"), two)
    assert applied(live, a_deployment(c="1"), two) == live


@given(documents)
def test_owned_fields_survive_the_trip_through_managed_fields(document: dict[str, Any]) -> None:
    for lists in (built_in_lists, custom_lists):
        owned = fields_of(document, lists)
        assert from_fields_v1(to_fields_v1(owned)) == owned


@given(st.dictionaries(texts, texts, max_size=3), st.dictionaries(texts, texts, min_size=1, max_size=2))
def test_a_selector_of_equalities_matches_what_has_them(labels: dict[str, str], wanted: dict[str, str]) -> None:
    selector = selectors.by_labels(",".join(f"{key}={value}" for key, value in wanted.items()))
    assert selector is not None
    assert selector({"metadata": {"labels": labels}}) == (wanted.items() <= labels.items())


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("a", True),
        ("!a", False),
        ("a=1", True),
        ("a==1", True),
        ("a!=1", False),
        ("b!=1", True),
        ("a in (1, 2)", True),
        ("a notin (1,2)", False),
        ("b notin (1)", True),
        ("a=1,!b", True),
        ("a in (1),b", False),
    ],
)
def test_label_selectors_read_as_kubernetes_reads_them(selector: str, matches: bool) -> None:
    found = selectors.by_labels(selector)
    assert found is not None and found({"metadata": {"labels": {"a": "1"}}}) is matches


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1", 1), ("100m", Decimal("0.1")), ("32Gi", 32 * 2**30), ("1k", 1000), ("1e3", 1000), (2, 2), ("0.5", "0.5")],
)
def test_quantities_are_read(text: object, amount: Any) -> None:
    assert quantities.parse(text) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "1Q", "Gi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        quantities.parse(text)


def names(deployment: dict[str, Any]) -> list[str]:
    return list(images(deployment))


def test_what_a_patch_names_is_in_its_order_and_the_rest_stays_where_it_was() -> None:
    assert names(strategic_patch(a_deployment(a="1", b="1", c="1"), a_deployment(c="2", x="2"))) == ["a", "b", "c", "x"]
    assert names(strategic_patch(a_deployment(a="1", b="1"), a_deployment(new="1"))) == ["new", "a", "b"]
    assert names(strategic_patch(a_deployment(a="1", b="1"), a_deployment(b="1", x="1", a="1"))) == ["b", "x", "a"]


def test_a_selector_is_merged_by_a_patch_and_replaced_by_who_applies_it() -> None:
    live = {"apiVersion": "apps/v1", "spec": {"selector": {"matchLabels": {"a": "1"}}}}
    wanted = {"apiVersion": "apps/v1", "spec": {"selector": {"matchLabels": {"b": "1"}}}}
    assert strategic_patch(live, wanted)["spec"]["selector"] == {"matchLabels": {"a": "1", "b": "1"}}
    applied = apply({**live, "metadata": {}}, wanted, Manager("one", APPLY), force=True, lists=built_in_lists, now=NOW)
    assert applied["spec"]["selector"] == {"matchLabels": {"b": "1"}}
