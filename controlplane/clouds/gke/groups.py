"""Decoding of Compute's answers about instance groups: size, pending instances, errors. Pure."""

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
    """The number of instances that the group still creates or recreates."""


@dataclass(frozen=True, slots=True)
class GroupError:
    """A failed attempt to create or change an instance."""

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
    reported = _read(answer, Manager) or Manager()
    actions = reported.current_actions
    return GroupState(reported.target_size, actions.creating + actions.creating_without_retries + actions.recreating)


def group_errors(answer: Mapping[str, Any]) -> Iterator[GroupError]:
    for reported in _items(answer, "items", ListedError):
        instance = reported.instance_action_details.instance.rpartition("/")[2]
        if reported.timestamp.tzinfo is not None:
            yield GroupError(reported.timestamp.timestamp(), instance, reported.error.code, reported.error.message)


def instances_in(answer: Mapping[str, Any], *, pending_only: bool = False) -> Iterator[str]:
    """Names of the group's instances. A pending instance has no machine."""
    for reported in _items(answer, "managedInstances", ManagedInstance):
        is_pending = reported.current_action in CREATING and reported.instance_status in NO_MACHINE
        if is_pending or not pending_only:
            yield reported.instance.rpartition("/")[2]


def _items(answer: Mapping[str, Any], key: str, kind: type[T]) -> Iterator[T]:
    """Valid items of an answer."""
    reported = answer.get(key)
    for each in reported if isinstance(reported, list) else ():
        read = _read(each, kind)
        if read is not None:
            yield read


def _read(reported: object, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(reported, kind)
    except msgspec.ValidationError:
        return None
