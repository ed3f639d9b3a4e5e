"""The actions of controllers, and the function that performs them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from simulator.kubernetes.objects import Key, Obj, clone, key_of
from simulator.kubernetes.resources import Resource
from simulator.kubernetes.server import ApiServer
from simulator.kubernetes.store import DeleteOptions


@dataclass(frozen=True, slots=True)
class Create:
    resource: Resource
    body: Obj


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes as a client does: with grace period and finalizers."""

    resource: Resource
    key: Key
    uid: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Removes at once, despite grace period and finalizers; sets `last_status` first."""

    resource: Resource
    key: Key
    last_status: Obj | None = None


@dataclass(frozen=True, slots=True)
class Change:
    resource: Resource
    key: Key
    change: Callable[[Obj], None]


@dataclass(frozen=True, slots=True)
class Bind:
    pod: Key
    node: str


Action = Create | Delete | Remove | Change | Bind


def set_status(resource: Resource, obj: Obj, status: Obj) -> list[Action]:
    """The change of the status; empty if the object already has it."""
    if obj.get("status") == status:
        return []
    return [Change(resource, key_of(obj), lambda changed: changed.update(status=clone(status)))]


def perform(server: ApiServer, action: Action) -> None:
    store = server.store
    match action:
        case Create():
            server.create(action.resource, action.body)
        case Delete():
            if store.find(action.resource, action.key) is not None:
                server.delete(action.resource, action.key, DeleteOptions(uid=action.uid))
        case Remove():
            if action.last_status is not None:
                last = action.last_status
                store.modify(action.resource, action.key, lambda obj: obj.update(status=last))
            if store.find(action.resource, action.key) is not None:
                store.remove(action.resource, action.key)
        case Change():
            store.modify(action.resource, action.key, action.change)
        case Bind():
            server.bind(action.pod, action.node)
        case _:
            assert_never(action)
