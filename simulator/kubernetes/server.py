"""The verbs of the API without HTTP: create, change, list and delete objects of the store."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.clock import Clock
from simulator.kubernetes import problems, schema
from simulator.kubernetes.admission import admit_change, admit_new, admit_status, topology_labels
from simulator.kubernetes.apply import APPLY, UPDATE, Manager, apply, track_update
from simulator.kubernetes.listing import Listing, list_objects
from simulator.kubernetes.merging import ListKinds, built_in_lists, custom_lists
from simulator.kubernetes.objects import (
    Key,
    Obj,
    clone,
    is_deleting,
    key_of,
    labels_of,
    meta,
    scale_of,
    scaled,
    spec_of,
    status_of,
)
from simulator.kubernetes.patch import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    json_patch,
    merge_patch,
    strategic_patch,
)
from simulator.kubernetes.resources import (
    CONFIG_MAPS,
    DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Registry,
    Resource,
)
from simulator.kubernetes.routes import Target
from simulator.kubernetes.shapes import shaped
from simulator.kubernetes.store import DeleteOptions, Store

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    makes_accounts: bool = True
    """Create the default service account of every namespace, as Kubernetes' controllers do."""
    toleration_s: int = 300
    """Default seconds that pods stay on a node that is not ready."""
    history_limit: int = 2000


@dataclass(frozen=True, slots=True)
class Writing:
    """Options of a write."""

    manager: str = "unknown"
    dry_run: bool = False
    force: bool = False


class ApiServer:
    def __init__(self, clock: Clock, options: ServerOptions, *, first_version: int) -> None:
        self.registry = Registry()
        self.store = Store(clock, history_limit=options.history_limit, first_version=first_version)
        self._options = options
        for name in SYSTEM_NAMESPACES:
            self.create(NAMESPACES, {"metadata": {"name": name}})

    def create(self, resource: Resource, body: Obj, writing: Writing | None = None) -> Obj:
        how = writing or Writing()
        obj = {**clone(body), "apiVersion": resource.api_version, "kind": resource.kind}
        obj = shaped(obj, custom=resource.custom)
        admit_new(resource, obj, self.store, toleration_s=self._options.toleration_s)
        self._check_schema(resource, obj)
        made = self.store.create(resource, obj, dry_run=how.dry_run)
        return made if how.dry_run else self._after_create(resource, made)

    def replace(self, target: Target, body: Obj, writing: Writing) -> Obj:
        resource, key = target.resource, Key(target.namespace, target.name)
        if target.subresource == "finalize":
            return self._finalize(resource, key, body)
        current = self.store.find(resource, key)
        if current is None and resource.created_by_put and not target.subresource:
            return self.create(resource, body, writing)
        if current is None:
            raise problems.not_found(resource.title, key.name)
        if resource.custom and not meta(body).get("resourceVersion"):
            cause = problems.Cause("metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update")
            raise problems.invalid(resource.kind, key.name, [cause], resource.group)
        return self._store_change(target, current, body, writing)

    def patch(self, target: Target, content_type: str, patch: Any, writing: Writing) -> Obj:
        resource, key = target.resource, Key(target.namespace, target.name)
        current = self.store.find(resource, key)
        if content_type == APPLY_PATCH:
            return self._apply(target, current, patch, writing)
        if current is None:
            raise problems.not_found(resource.title, key.name)
        return self._store_change(target, current, self._patched(resource, content_type, current, patch), writing)

    def delete(self, resource: Resource, key: Key, options: DeleteOptions, *, dry_run: bool = False) -> Obj:
        """Deletes an object; returns the object, or a Status if it is gone."""
        obj, is_gone = self.store.delete(resource, key, options, dry_run=dry_run)
        if is_gone and not dry_run:
            self._after_delete(resource, obj)
        if not is_gone or resource.delete_answers_object:
            return obj
        details = {"name": key.name, "kind": resource.plural, "uid": meta(obj)["uid"]}
        return problems.success({**details, "group": resource.group} if resource.group else details)

    def delete_all(self, resource: Resource, listing: Listing, options: DeleteOptions) -> Obj:
        found = list_objects(self.store, resource, listing)
        for obj in found["items"]:
            self.delete(resource, key_of(obj), options)
        return found

    def bind(self, key: Key, node: str) -> None:
        """Places a pod on a node, once."""
        pod = self.store.get(PODS, key)
        if is_deleting(pod):
            why = f"pod {key.name} is being deleted, cannot be assigned to a host"
            raise problems.conflict("pods/binding", key.name, why)
        if spec_of(pod).get("nodeName"):
            why = f'pod {key.name} is already assigned to node "{spec_of(pod)["nodeName"]}"'
            raise problems.conflict("pods/binding", key.name, why)
        if not node:
            cause = problems.Cause("target.name", "Required value", "FieldValueRequired")
            raise problems.invalid("Binding", key.name, [cause])
        now, where = self.store.now, topology_labels(self.store, node)

        def change(obj: Obj) -> None:
            spec_of(obj)["nodeName"] = node
            if where:
                meta(obj)["labels"] = {**labels_of(obj), **where}
            others = [each for each in status_of(obj).get("conditions") or [] if each["type"] != "PodScheduled"]
            scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
            obj["status"] = {**status_of(obj), "conditions": [*others, scheduled]}

        self.store.modify(PODS, key, change, counts=False)

    def scale(self, target: Target, change: Callable[[Obj], Obj], writing: Writing) -> Obj:
        """Scales an object; `change` maps the current Scale to the wanted one."""
        current = self.store.get(target.resource, Key(target.namespace, target.name))
        whole = Target(target.resource, target.version, target.namespace, target.name)
        return scale_of(self._store_change(whole, current, scaled(current, change(scale_of(current))), writing))

    def _apply(self, target: Target, current: Obj | None, patch: Any, writing: Writing) -> Obj:
        resource = target.resource
        if not isinstance(patch, dict):
            raise problems.bad_request("the applied configuration must be an object")
        given = patch.get("apiVersion") or "/", patch.get("kind") or ""
        if given != (target.api_version, resource.kind):
            raise problems.bad_request(f"invalid object type: {given[0]}, Kind={given[1]}")
        if (patch.get("metadata") or {}).get("managedFields"):
            raise problems.bad_request("metadata.managedFields must be nil")
        if current is None and target.subresource:
            raise problems.not_found(resource.title, target.name)
        fields = {**(patch.get("metadata") or {}), "name": target.name}
        if target.namespace:
            fields["namespace"] = target.namespace
        applied = {**patch, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": fields}
        if not target.subresource and resource.has_status:
            applied.pop("status", None)
        manager = Manager(writing.manager, APPLY, target.subresource)
        live: Obj = current or {"metadata": {key: fields[key] for key in ("name", "namespace") if key in fields}}
        wanted = apply(live, applied, manager, force=writing.force, lists=_lists(resource), now=self.store.now)
        if current is None:
            return self.create(resource, wanted, writing)
        return self._store_change(target, current, wanted, writing, tracked=True)

    def _patched(self, resource: Resource, content_type: str, current: Obj, patch: Any) -> Obj:
        if content_type == JSON_PATCH:
            return json_patch(current, patch)
        if not isinstance(patch, dict):
            raise problems.bad_request("the patch must be an object")
        if content_type == STRATEGIC_PATCH and not resource.custom:
            return strategic_patch(current, patch)
        if content_type == MERGE_PATCH:
            merged: Obj = merge_patch(current, patch)
            return merged
        raise problems.unsupported_media_type()

    def _store_change(
        self, target: Target, current: Obj, wanted: Obj, writing: Writing, *, tracked: bool = False
    ) -> Obj:
        resource, key = target.resource, Key(target.namespace, target.name)
        is_status = target.subresource == "status"
        obj = {**clone(wanted), "apiVersion": resource.api_version, "kind": resource.kind}
        obj = shaped(obj, custom=resource.custom)
        given = meta(obj)
        if given.get("name", key.name) != key.name or (given.get("namespace") or key.namespace) != key.namespace:
            text = f"the name of the object ({given.get('name')}) does not match the name on the URL ({key.name})"
            raise problems.bad_request(text)
        given["name"] = key.name
        if is_status:
            obj = {
                **clone(current),
                "status": obj.get("status") or {},
                "metadata": _beside_status(resource, current, given),
            }
        elif resource.has_status:
            obj["status"] = current.get("status")
            if obj["status"] is None:
                del obj["status"]
        if is_status:
            admit_status(resource, obj)
        else:
            admit_change(resource, current, obj)
        self._check_schema(resource, obj)
        if not tracked:
            manager = Manager(writing.manager, UPDATE, target.subresource)
            obj = track_update(current, obj, manager, lists=_lists(resource), now=self.store.now)
        stored = self.store.replace(resource, key, obj, status=is_status, dry_run=writing.dry_run)
        if not writing.dry_run:
            self._after_change(resource, key, stored)
        return stored

    def _after_create(self, resource: Resource, made: Obj) -> Obj:
        if resource.id == NAMESPACES.id and self._options.makes_accounts:
            fields = {"namespace": meta(made)["name"]}
            self.create(SERVICE_ACCOUNTS, {"metadata": {**fields, "name": "default"}})
            self.create(CONFIG_MAPS, {"metadata": {**fields, "name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}})
        if resource.id == DEFINITIONS.id:
            self.registry.define(made)
            return self._establish(made)
        return made

    def _after_change(self, resource: Resource, key: Key, stored: Obj) -> None:
        if self.store.find(resource, key) is None:
            self._after_delete(resource, stored)
        elif resource.id == DEFINITIONS.id:
            self.registry.define(stored)

    def _after_delete(self, resource: Resource, obj: Obj) -> None:
        if resource.id == DEFINITIONS.id:
            custom = self.registry.define(obj)
            for each in self.store.all(custom):
                self.store.remove(custom, key_of(each))
            self.registry.forget(obj)

    def _establish(self, definition: Obj) -> Obj:
        spec, now = spec_of(definition), self.store.now
        conditions = [
            {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]
        stored = [each["name"] for each in spec["versions"] if each.get("storage")]
        status = {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}
        established = self.store.modify(DEFINITIONS, key_of(definition), lambda obj: obj.update(status=status))
        return established or definition

    def _finalize(self, resource: Resource, key: Key, body: Obj) -> Obj:
        finalizers = spec_of(body).get("finalizers") or []

        def change(obj: Obj) -> None:
            obj["spec"] = {**spec_of(obj), "finalizers": finalizers}

        found = self.store.modify(resource, key, change)
        if found is None:
            raise problems.not_found(resource.title, key.name)
        return found

    def _check_schema(self, resource: Resource, obj: Obj) -> None:
        wanted = resource.schemas.get(resource.version)
        if wanted is None:
            return
        schema.complete(obj, wanted)
        causes = schema.causes(obj, wanted)
        if causes:
            raise problems.invalid(resource.kind, meta(obj).get("name", ""), causes, resource.group)


def _lists(resource: Resource) -> ListKinds:
    return custom_lists if resource.custom else built_in_lists


def _beside_status(resource: Resource, current: Obj, given: Obj) -> Obj:
    """The metadata after a write of the status: its preconditions, and labels and annotations of nodes and pods."""
    fences = {name: given[name] for name in ("resourceVersion", "uid", "managedFields") if given.get(name)}
    if resource.id not in (NODES.id, PODS.id):
        return {**meta(current), **fences}
    kept = {name: value for name, value in meta(current).items() if name not in ("labels", "annotations")}
    return {**kept, **fences, **{name: given[name] for name in ("labels", "annotations") if given.get(name)}}
