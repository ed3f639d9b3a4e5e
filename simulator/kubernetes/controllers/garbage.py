"""Removes dependants of deleted objects, the content of ending namespaces, and old events."""

from collections.abc import Iterable

from simulator.kubernetes.controllers.actions import Action, Change, Delete, Remove
from simulator.kubernetes.objects import Obj, is_deleting, key_of, meta, name_of, spec_of, uid_of, version_of
from simulator.kubernetes.resources import EVENTS, NAMESPACES, Resource
from simulator.kubernetes.store import FOREGROUND, ORPHAN

Everything = list[tuple[Resource, list[Obj]]]
EVENTS_AT_MOST = 1000


def collect_dependants(everything: Everything) -> list[Action]:
    alive = {uid_of(obj) for _, objects in everything for obj in objects}
    owners = {
        uid_of(obj): obj
        for _, objects in everything
        for obj in objects
        if is_deleting(obj) and {ORPHAN, FOREGROUND} & set(meta(obj).get("finalizers") or [])
    }
    actions: list[Action] = []
    still_owned: set[str] = set()
    for resource, objects in everything:
        for obj in objects:
            references = meta(obj).get("ownerReferences") or []
            if not references:
                continue
            orphaning = {each["uid"] for each in references if ORPHAN in _finalizers(owners.get(each["uid"]))}
            if orphaning:
                actions.append(Change(resource, key_of(obj), _Disowned(frozenset(orphaning))))
                continue
            gone = [each for each in references if each["uid"] not in alive]
            leaving = [each["uid"] for each in references if FOREGROUND in _finalizers(owners.get(each["uid"]))]
            still_owned.update(leaving)
            if len(gone) + len(leaving) == len(references) and not is_deleting(obj):
                actions.append(Delete(resource, key_of(obj), uid_of(obj)))
    return actions + _released(everything, owners, still_owned)


def empty_namespaces(everything: Everything) -> list[Action]:
    namespaces = next((objects for resource, objects in everything if resource.id == NAMESPACES.id), [])
    ending = {name_of(each): each for each in namespaces if is_deleting(each)}
    if not ending:
        return []
    actions: list[Action] = []
    full: set[str] = set()
    for resource, objects in everything:
        for obj in objects:
            namespace = meta(obj).get("namespace") or ""
            if not resource.namespaced or namespace not in ending:
                continue
            full.add(namespace)
            if not is_deleting(obj):
                actions.append(Delete(resource, key_of(obj), uid_of(obj)))
    for name, namespace in ending.items():
        if name not in full and spec_of(namespace).get("finalizers"):
            actions.append(Change(NAMESPACES, key_of(namespace), _finalized))
    return actions


def forget_events(events: list[Obj]) -> list[Action]:
    surplus = max(0, len(events) - EVENTS_AT_MOST)
    oldest = sorted(events, key=version_of)[:surplus] if surplus else []
    return [Remove(EVENTS, key_of(event)) for event in oldest]


def _finalizers(obj: Obj | None) -> list[str]:
    return [] if obj is None else meta(obj).get("finalizers") or []


def _released(everything: Everything, owners: dict[str, Obj], still_owned: Iterable[str]) -> list[Action]:
    """Releases owners that no longer wait for dependants."""
    waiting = set(still_owned)
    return [
        Change(resource, key_of(obj), _without_propagation)
        for resource, objects in everything
        for obj in objects
        if uid_of(obj) in owners and uid_of(obj) not in waiting
    ]


def _finalized(namespace: Obj) -> None:
    namespace["spec"] = {**spec_of(namespace), "finalizers": []}


def _without_propagation(obj: Obj) -> None:
    meta(obj)["finalizers"] = [each for each in _finalizers(obj) if each not in (ORPHAN, FOREGROUND)]


class _Disowned:
    def __init__(self, owners: frozenset[str]) -> None:
        self._owners = owners

    def __call__(self, obj: Obj) -> None:
        kept = [each for each in meta(obj).get("ownerReferences") or [] if each["uid"] not in self._owners]
        meta(obj)["ownerReferences"] = kept
