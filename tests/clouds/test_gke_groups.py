"""Answers of Compute about an instance group, valid and invalid."""

from typing import Any

import pytest

from controlplane.clouds.gke.groups import GroupError, group_errors, group_state, instances_in

LINK = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instances"


@pytest.mark.parametrize(
    ("action", "status", "is_pending"),
    [
        ("CREATING", "", True),
        ("CREATING_WITHOUT_RETRIES", "", True),
        ("RECREATING", "TERMINATED", True),
        ("RECREATING", "RUNNING", False),
        ("CREATING", "PROVISIONING", False),
        ("CREATING", "STAGING", False),
        ("NONE", "RUNNING", False),
        ("DELETING", "", False),
    ],
)
def test_an_instance_is_pending_while_it_has_no_machine(action: str, status: str, is_pending: bool) -> None:
    answer = {"managedInstances": [{"instance": f"{LINK}/a", "currentAction": action, "instanceStatus": status}]}
    assert list(instances_in(answer)) == ["a"]
    assert list(instances_in(answer, pending_only=True)) == (["a"] if is_pending else [])


def test_errors_have_their_time_their_instance_and_their_reason() -> None:
    item = {
        "error": {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "none"},
        "instanceActionDetails": {"action": "CREATING", "instance": f"{LINK}/a", "version": {}},
        "timestamp": "2026-11-18T01:00:00.500-08:00",
    }
    assert list(group_errors({"items": [item]})) == [
        GroupError(1794992400.5, "a", "ZONE_RESOURCE_POOL_EXHAUSTED", "none")
    ]


@pytest.mark.parametrize(
    "item", [{}, {"timestamp": "yesterday"}, {"timestamp": 5}, {"timestamp": "0001-01-01T00:00:00"}, "text", None]
)
def test_errors_without_a_time_are_passed_over(item: Any) -> None:
    assert list(group_errors({"items": [item]})) == []
    assert list(group_errors({"items": item})) == []


def test_what_a_group_still_has_to_create_is_counted() -> None:
    actions = {"none": 1, "creating": 2, "recreating": 1, "creatingWithoutRetries": 1, "deleting": 7}
    assert group_state({"targetSize": 5, "currentActions": actions}).creating == 4
    assert group_state({"targetSize": "5"}).target is None
