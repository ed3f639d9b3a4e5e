"""Server-side apply: each manager owns the fields it applied.

A field that a manager applied before and no longer applies is removed, unless another manager owns it too. A field that
another manager owns with another value is a conflict, unless the manager forces it.
"""

from dataclasses import dataclass

from simulator.kubernetes import fields
from simulator.kubernetes.fields import ITSELF, FieldPath
from simulator.kubernetes.merging import ListKinds
from simulator.kubernetes.objects import Obj, clone, meta
from simulator.kubernetes.patch import strategic_patch
from simulator.kubernetes.problems import Cause, apply_conflict

APPLY = "Apply"
UPDATE = "Update"
BEFORE_FIRST_APPLY = "before-first-apply"


@dataclass(frozen=True, slots=True)
class Manager:
    name: str
    operation: str
    subresource: str = ""


Owned = dict[Manager, frozenset[FieldPath]]


def apply(live: Obj, applied: Obj, manager: Manager, *, force: bool, lists: ListKinds, now: str) -> Obj:
    """The object after the configuration is applied to it; for a new object `live` has only a name."""
    wanted = fields.fields_of(applied, lists)
    owned = _owned(live, lists)
    others = {who: paths for who, paths in owned.items() if who != manager}
    conflicts = [
        (who, path)
        for who, paths in others.items()
        for path in sorted(paths & wanted)
        if path[-1] != ITSELF and fields.value_at(live, path) != fields.value_at(applied, path)
    ]
    if conflicts and not force:
        raise apply_conflict([_cause(who, path, applied["apiVersion"]) for who, path in conflicts])
    for who, path in conflicts:
        others[who] = others[who] - {path}
    merged = strategic_patch(live, applied, lists, applies=True)
    owned_by_others: frozenset[FieldPath] = frozenset().union(*others.values())
    kept = wanted | owned_by_others
    dropped = owned.get(manager, frozenset()) - kept
    for path in sorted(dropped, key=lambda each: (each[-1] != ITSELF, each)):
        if not _holds_others(path, kept) and not fields.is_identity(path):
            merged = fields.without(merged, path)
    return _recorded(live, merged, {**others, manager: wanted}, now)


def track_update(before: Obj, after: Obj, manager: Manager, *, lists: ListKinds, now: str) -> Obj:
    """Makes the manager own the fields that a plain write changed, if the object has been applied to before."""
    if not meta(before).get("managedFields"):
        return after
    owned = _owned(before, lists)
    current = fields.fields_of(after, lists)
    changed = frozenset(
        path for path in current if fields.value_at(before, path) != fields.value_at(after, path) and path[-1] != ITSELF
    )
    left = {who: (paths & current) - (changed if who != manager else frozenset()) for who, paths in owned.items()}
    if changed:
        left[manager] = left.get(manager, frozenset()) | changed
    return _recorded(before, after, left, now)


def _owned(obj: Obj, lists: ListKinds) -> Owned:
    entries = meta(obj).get("managedFields") or []
    if not entries:
        current = fields.fields_of(obj, lists)
        content = frozenset(path for path in current if path[0] != "f:status")
        return {Manager(BEFORE_FIRST_APPLY, UPDATE): content} if content else {}
    return {
        Manager(each.get("manager", ""), each.get("operation", UPDATE), each.get("subresource", "")): (
            fields.from_fields_v1(each.get("fieldsV1") or {})
        )
        for each in entries
    }


def _recorded(before: Obj, after: Obj, owned: Owned, now: str) -> Obj:
    old = {
        Manager(each.get("manager", ""), each.get("operation", UPDATE), each.get("subresource", "")): each
        for each in meta(before).get("managedFields") or []
    }
    entries = []
    for who, paths in owned.items():
        if not paths:
            continue
        tree = fields.to_fields_v1(paths)
        same = who in old and old[who].get("fieldsV1") == tree
        entries.append(old[who] if same else _entry(who, tree, after.get("apiVersion", ""), now))
    recorded = clone(after)
    meta(recorded)["managedFields"] = entries
    return recorded


def _entry(who: Manager, tree: Obj, api_version: str, now: str) -> Obj:
    entry = {
        "manager": who.name,
        "operation": who.operation,
        "apiVersion": api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": tree,
    }
    return {**entry, "subresource": who.subresource} if who.subresource else entry


def _holds_others(path: FieldPath, kept: frozenset[FieldPath]) -> bool:
    """True if another field in this list item has an owner; the item stays then."""
    if path[-1] != ITSELF:
        return False
    inside = path[:-1]
    return any(each[: len(inside)] == inside for each in kept)


def _cause(who: Manager, path: FieldPath, api_version: str) -> Cause:
    through = f' with subresource "{who.subresource}"' if who.subresource else ""
    text = f'conflict with "{who.name}"{through}' + (f" using {api_version}" if who.operation == UPDATE else "")
    return Cause(fields.readable(path), text, "FieldManagerConflict")
