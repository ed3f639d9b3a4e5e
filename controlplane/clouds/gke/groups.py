"""What Compute says of an instance group: its size, its pending instances, its errors. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

T = TypeVar("T")

CREATING = ("CREATING", "CREATING_WITHOUT_RETRIES", "RECREATING")
NO_MACHINE = ("", "STOPPING", "STOPPED", "TERMINATED")


@dataclass(frozen=True, slots=True)
class GroupState:
    target: int | None
    creating: int
    """Instances that it still has to create, or create again."""


@dataclass(frozen=True, slots=True)
class GroupError:
    """A failed attempt on an instance."""

    at: float
    """Unix seconds by Google's clock."""
    instance: str
    code: str
    message: str


class CurrentActions(Struct, frozen=True, rename="camel"):
    creating: int = 0
    creating_without_retries: int = 0
    recreating: int = 0


class Manager(Struct, frozen=True, rename="camel"):
    target_size: int | None = None
    current_actions: CurrentActions = CurrentActions()


class Error(Struct, frozen=True):
    code: str = ""
    message: str = ""


class ActionDetails(Struct, frozen=True):
    instance: str = ""


class ListedError(Struct, frozen=True, rename="camel"):
    timestamp: datetime
    error: Error = Error()
    instance_action_details: ActionDetails = field(default_factory=ActionDetails)


class ManagedInstance(Struct, frozen=True, rename="camel"):
    instance: str
    current_action: str = ""
    instance_status: str = ""


def group_state(answer: Mapping[str, Any]) -> GroupState:
    told = _read(answer, Manager) or Manager()
    actions = told.current_actions
    return GroupState(told.target_size, actions.creating + actions.creating_without_retries + actions.recreating)


def group_errors(answer: Mapping[str, Any]) -> Iterator[GroupError]:
    for told in _items(answer, "items", ListedError):
        instance = told.instance_action_details.instance.rpartition("/")[2]
        if told.timestamp.tzinfo is not None:
            yield GroupError(told.timestamp.timestamp(), instance, told.error.code, told.error.message)


def instances_told(answer: Mapping[str, Any], *, pending_only: bool = False) -> Iterator[str]:
    """Names of the group's instances; pending ones have no machine yet, or no more."""
    for told in _items(answer, "managedInstances", ManagedInstance):
        is_pending = told.current_action in CREATING and told.instance_status in NO_MACHINE
        if is_pending or not pending_only:
            yield told.instance.rpartition("/")[2]


def _items(answer: Mapping[str, Any], key: str, kind: type[T]) -> Iterator[T]:
    """Items of an answer; those with another shape are skipped."""
    told = answer.get(key)
    for each in told if isinstance(told, list) else ():
        read = _read(each, kind)
        if read is not None:
            yield read


def _read(told: object, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError:
        return None
