"""The objects of one cluster, with versions, uids, conflicts and deletion.

The store is in memory and synchronous: each call ends before the next begins. Every change gets the next number of one
counter and enters the history of its kind. Listeners are called after each change; they must not write, only note that
there is something to do.
"""

import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runtime.clock import Clock
from simulator.kubernetes import problems
from simulator.kubernetes.history import Change, ChangeType, History
from simulator.kubernetes.objects import Key, Obj, clone, is_deleting, is_finished, key_of, meta, spec_of, timestamp
from simulator.kubernetes.resources import NAMESPACES, PODS, Resource

Listener = Callable[[Resource, Change], None]

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_NAME_TRIES = 8
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "namespace")
ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_s: int | None = None
    uid: str | None = None
    version: str | None = None
    propagation: str = "Background"
    """Background, Foreground or Orphan."""


class Store:
    def __init__(self, clock: Clock, *, history_limit: int = 2000, first_version: int = 1) -> None:
        self.version = first_version
        self.listeners: list[Listener] = []
        self._clock = clock
        self._history_limit = history_limit
        self._objects: dict[tuple[str, str], dict[Key, Obj]] = {}
        self._ordered: dict[tuple[str, str], list[Obj]] = {}
        """Cache of the objects in order of their keys, until the next change of their kind."""
        self._histories: dict[tuple[str, str], History] = {}
        self._compacted = first_version

    @property
    def now(self) -> str:
        return timestamp(self._clock.wall_s())

    def find(self, resource: Resource, key: Key) -> Obj | None:
        return self._of(resource).get(key)

    def get(self, resource: Resource, key: Key) -> Obj:
        found = self.find(resource, key)
        if found is None:
            raise problems.not_found(resource.title, key.name)
        return found

    def all(self, resource: Resource, namespace: str = "") -> list[Obj]:
        """Objects in order of their keys; of all namespaces if none is given."""
        ordered = self._ordered.get(resource.id)
        if ordered is None:
            ordered = self._ordered[resource.id] = _in_order(self._of(resource).items(), "")
        return [obj for obj in ordered if not namespace or meta(obj).get("namespace") == namespace]

    def all_at(self, resource: Resource, namespace: str, version: int) -> list[Obj]:
        """Objects at an earlier version; raises 410 if the window does not reach back that far."""
        history = self.history(resource)
        changes = history.since(version)
        if changes is None or version < history.floor:
            raise self.expired(resource, version)
        objects = dict(self._of(resource))
        for change in reversed(changes):
            if change.before is None:
                objects.pop(key_of(change.object), None)
            else:
                objects[key_of(change.before)] = change.before
        return _in_order(objects.items(), namespace)

    def history(self, resource: Resource) -> History:
        found = self._histories.get(resource.id)
        if found is None:
            found = self._histories[resource.id] = History(self._compacted, self._history_limit)
        return found

    def expired(self, resource: Resource, version: int) -> problems.ApiProblem:
        return problems.gone(f"too old resource version: {version} ({self.history(resource).floor})")

    def compact(self, *, expire_watches: bool = False) -> None:
        """Forgets all changes so far: watches from older versions must list again; all must if `expire_watches`."""
        self._compacted = self.version
        for history in self._histories.values():
            history.compact(self.version, expire_watches=expire_watches)

    def create(self, resource: Resource, given: Obj, *, dry_run: bool = False) -> Obj:
        obj = clone(given)
        fields = meta(obj)
        if not fields.get("name"):
            fields["name"] = self._free_name(resource, fields)
        key = key_of(obj)
        if key in self._of(resource):
            raise problems.already_exists(resource.title, key.name)
        fields["uid"] = str(uuid.uuid4())
        fields["creationTimestamp"] = self.now
        if resource.has_generation:
            fields["generation"] = 1
        for never_given in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            fields.pop(never_given, None)
        return obj if dry_run else self._commit(resource, ChangeType.ADDED, obj, None)

    def replace(self, resource: Resource, key: Key, given: Obj, *, status: bool = False, dry_run: bool = False) -> Obj:
        """Replaces the status only, or everything but the status if it is a subresource."""
        current = self.get(resource, key)
        self._check_version(resource, current, meta(given).get("resourceVersion"), meta(given).get("uid"))
        obj = clone(given)
        if status:
            status_now = {"status": obj["status"]} if "status" in obj else {}
            obj = {**clone(current), "metadata": meta(obj), **status_now}
        elif resource.has_status:
            obj.pop("status", None)
            if "status" in current:
                obj["status"] = current["status"]
        return self._put(resource, current, obj, dry_run)

    def modify(self, resource: Resource, key: Key, change: Callable[[Obj], None], *, counts: bool = True) -> Obj | None:
        """Changes an object with its status, for controllers; None if it is missing.

        `counts`: a change of the spec increases the generation.
        """
        current = self.find(resource, key)
        if current is None:
            return None
        obj = clone(current)
        change(obj)
        return self._put(resource, current, obj, dry_run=False, counts=counts)

    def delete(
        self, resource: Resource, key: Key, options: DeleteOptions | None = None, *, dry_run: bool = False
    ) -> tuple[Obj, bool]:
        """Deletes an object; returns it, and True if it is gone. Finalizers and a grace period delay that."""
        wanted = options or DeleteOptions()
        current = self.get(resource, key)
        _check_preconditions(resource, current, wanted)
        grace_s = _grace_s(resource, current, wanted)
        finalizers = _finalizers(current, wanted)
        at_once = grace_s == 0 and not finalizers and not _holds_content(resource, current)
        if dry_run:
            return current, at_once
        if at_once and resource.id != PODS.id:
            return self.remove(resource, key), True
        obj = self._marked(resource, current, grace_s)
        if finalizers:
            meta(obj)["finalizers"] = finalizers
        if at_once:
            # Watchers of pods see the begin of even the shortest grace period.
            self._commit(resource, ChangeType.MODIFIED, obj, current)
            return self.remove(resource, key), True
        if _holds_content(resource, obj):
            meta(obj).pop("deletionGracePeriodSeconds", None)
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return self._settle(resource, current, obj), False

    def _marked(self, resource: Resource, current: Obj, grace_s: int) -> Obj:
        """The object with a deletion time; another deletion can only make it earlier."""
        obj = clone(current)
        fields = meta(obj)
        if not is_deleting(current) and resource.has_generation:
            fields["generation"] = fields.get("generation", 0) + 1
        if not is_deleting(current) or grace_s < fields.get("deletionGracePeriodSeconds", 0):
            fields["deletionTimestamp"] = timestamp(self._clock.wall_s() + grace_s)
            fields["deletionGracePeriodSeconds"] = grace_s
        return obj

    def remove(self, resource: Resource, key: Key) -> Obj:
        """Removes an object at once, despite grace period and finalizers."""
        return self._commit(resource, ChangeType.DELETED, clone(self.get(resource, key)), self.get(resource, key))

    def _put(self, resource: Resource, current: Obj, obj: Obj, dry_run: bool, *, counts: bool = True) -> Obj:
        fields = meta(obj)
        fields["name"] = meta(current)["name"]
        for kept in _KEPT:
            fields.pop(kept, None)
            if kept in meta(current):
                fields[kept] = meta(current)[kept]
        fields["resourceVersion"] = meta(current)["resourceVersion"]
        if counts and resource.has_generation and _content(obj) != _content(current):
            fields["generation"] = meta(current).get("generation", 0) + 1
        return obj if dry_run else self._settle(resource, current, obj)

    def _settle(self, resource: Resource, current: Obj, obj: Obj) -> Obj:
        """Commits a change; removes a deleted object that no longer waits for anything."""
        fields = meta(obj)
        waits_for_nothing = not fields.get("finalizers") and not fields.get("deletionGracePeriodSeconds")
        if is_deleting(obj) and waits_for_nothing and not _holds_content(resource, obj):
            return self._commit(resource, ChangeType.DELETED, obj, current)
        if obj == current:
            return current
        return self._commit(resource, ChangeType.MODIFIED, obj, current)

    def _commit(self, resource: Resource, kind: ChangeType, obj: Obj, before: Obj | None) -> Obj:
        self.version += 1
        meta(obj)["resourceVersion"] = str(self.version)
        if kind is ChangeType.DELETED:
            del self._of(resource)[key_of(obj)]
        else:
            self._of(resource)[key_of(obj)] = obj
        self._ordered.pop(resource.id, None)
        change = Change(self.version, kind, obj, before)
        self.history(resource).append(change)
        for listener in self.listeners:
            listener(resource, change)
        return obj

    def _of(self, resource: Resource) -> dict[Key, Obj]:
        return self._objects.setdefault(resource.id, {})

    def _check_version(self, resource: Resource, current: Obj, version: str | None, uid: str | None) -> None:
        name = meta(current)["name"]
        if version and version != meta(current)["resourceVersion"]:
            raise problems.conflict(resource.title, name)
        if uid and uid != meta(current)["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta(current)['uid']}"
            raise problems.conflict(resource.title, name, why)

    def _free_name(self, resource: Resource, fields: Obj) -> str:
        namespace, prefix = fields.get("namespace") or "", str(fields["generateName"])
        for _ in range(_NAME_TRIES):
            name = prefix + "".join(random.choices(_SUFFIX, k=_SUFFIX_LENGTH))
            if Key(namespace, name) not in self._of(resource):
                return name
        raise problems.already_exists(resource.title, name)


def _check_preconditions(resource: Resource, current: Obj, wanted: DeleteOptions) -> None:
    name, uid, version = meta(current)["name"], meta(current)["uid"], meta(current)["resourceVersion"]
    title = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    if wanted.uid is not None and wanted.uid != uid:
        why = f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({uid})"
        raise problems.conflict(title, name, f"{why}. The object might have been deleted and then recreated")
    if wanted.version is not None and wanted.version != version:
        why = f"the ResourceVersion in the precondition ({wanted.version}) does not match the ResourceVersion in record"
        raise problems.conflict(title, name, f"{why} ({version}). The object might have been modified")


def _in_order(objects: Iterable[tuple[Key, Obj]], namespace: str) -> list[Obj]:
    return [
        obj for key, obj in sorted(objects, key=lambda each: each[0]) if not namespace or key.namespace == namespace
    ]


def _holds_content(resource: Resource, obj: Obj) -> bool:
    """True for a namespace whose content is not deleted yet."""
    return resource.id == NAMESPACES.id and bool(spec_of(obj).get("finalizers"))


def _content(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def _grace_s(resource: Resource, obj: Obj, options: DeleteOptions) -> int:
    """Grace period in seconds; only pods on a node have one."""
    if resource.id != PODS.id or not spec_of(obj).get("nodeName") or is_finished(obj):
        return 0
    default_s = spec_of(obj).get("terminationGracePeriodSeconds", 30)
    return max(0, int(default_s if options.grace_s is None else options.grace_s))


def _finalizers(obj: Obj, options: DeleteOptions) -> list[str]:
    own = [each for each in meta(obj).get("finalizers") or [] if each not in (ORPHAN, FOREGROUND)]
    if options.propagation == "Orphan":
        return [*own, ORPHAN]
    if options.propagation == "Foreground":
        return [*own, FOREGROUND]
    return list(meta(obj).get("finalizers") or [])
