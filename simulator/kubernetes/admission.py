"""What the API server adds to an object and refuses about it, before it is stored."""

import base64
import re
from collections.abc import Callable, Iterator

from simulator.kubernetes import pods, problems, quantities
from simulator.kubernetes.objects import EPOCH, Key, Obj, is_deleting, labels_of, meta, spec_of, status_of, unix_s
from simulator.kubernetes.problems import Cause
from simulator.kubernetes.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from simulator.kubernetes.selectors import by_spec
from simulator.kubernetes.store import Store

NOT_READY_TAINT = "node.kubernetes.io/not-ready"

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_PATH_SEGMENT = re.compile(r"^[^/%]+$")
_LABEL_KEY = re.compile(r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
_LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")
_SHARE = re.compile(r"^[0-9]{1,3}%$")
_REQUIRED = "FieldValueRequired"


def admit_new(resource: Resource, obj: Obj, store: Store, *, toleration_s: int) -> None:
    """Completes the object; raises what is wrong with it."""
    _check_namespace(resource, obj, store)
    _complete(resource, obj, store, toleration_s)
    _refuse(resource, obj, [*_metadata_causes(resource, obj), *_causes(resource, obj)])


def admit_change(resource: Resource, before: Obj, obj: Obj) -> None:
    _complete_update(resource, obj)
    causes = [*_metadata_causes(resource, obj), *_causes(resource, obj)]
    if is_deleting(before):
        added = set(meta(obj).get("finalizers") or []) - set(meta(before).get("finalizers") or [])
        if added:
            text = (
                f"Forbidden: no new finalizers can be added if the object is being deleted, found new {sorted(added)}"
            )
            causes.append(Cause("metadata.finalizers", text, "FieldValueForbidden"))
    if resource.id == PODS.id:
        causes += pods.forbidden_changes(spec_of(before), spec_of(obj))
    if resource.id in (DEPLOYMENTS.id, DAEMON_SETS.id, REPLICA_SETS.id):
        old, new = spec_of(before).get("selector"), spec_of(obj).get("selector")
        if old != new:
            causes.append(Cause("spec.selector", "Invalid value: field is immutable"))
    _refuse(resource, obj, causes)


def admit_status(resource: Resource, obj: Obj) -> None:
    if not resource.custom:
        _refuse(resource, obj, list(_status_causes(obj)))


def _check_namespace(resource: Resource, obj: Obj, store: Store) -> None:
    if not resource.namespaced:
        return
    name = meta(obj).get("namespace") or ""
    namespace = store.find(NAMESPACES, Key("", name))
    if namespace is None:
        raise problems.not_found("namespaces", name)
    if is_deleting(namespace):
        why = f"unable to create new content in namespace {name} because it is being terminated"
        causes = [{"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}]
        details = {"name": meta(obj).get("name", ""), "kind": resource.plural, "causes": causes}
        raise problems.forbidden(resource.title, meta(obj).get("name", ""), why, details)


def _complete(resource: Resource, obj: Obj, store: Store, toleration_s: int) -> None:
    match resource.id:
        case PODS.id:
            pods.complete(obj, toleration_s)
            _check_service_account(obj, store)
        case NODES.id:
            spec = obj.setdefault("spec", {})
            if not any(taint.get("key") == NOT_READY_TAINT for taint in spec.get("taints") or []):
                spec["taints"] = [*(spec.get("taints") or []), {"key": NOT_READY_TAINT, "effect": "NoSchedule"}]
        case NAMESPACES.id:
            obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
            obj["status"] = {"phase": "Active"}
            name = meta(obj).get("name", "")
            meta(obj)["labels"] = {"kubernetes.io/metadata.name": name, **labels_of(obj)}
        case SERVICES.id:
            spec = obj.setdefault("spec", {})
            spec.setdefault("type", "ClusterIP")
            spec.setdefault("sessionAffinity", "None")
            spec.setdefault("clusterIP", "None" if spec["type"] == "ExternalName" else f"10.96.0.{store.version % 250}")
            obj["status"] = {"loadBalancer": {}}
        case DEPLOYMENTS.id | REPLICA_SETS.id | DAEMON_SETS.id:
            _complete_workload(resource, obj)
        case DEFINITIONS.id:
            _complete_definition(obj)
    _complete_update(resource, obj)
    if resource.has_status and not resource.custom:
        obj.setdefault("status", {})


def _complete_update(resource: Resource, obj: Obj) -> None:
    if resource.id == SECRETS.id:
        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None) or {}
        _check_base64(resource, obj, "data")
        encoded = {name: base64.b64encode(str(text).encode()).decode() for name, text in plain.items()}
        if encoded:
            obj["data"] = {**(obj.get("data") or {}), **encoded}
    if resource.id == CONFIG_MAPS.id:
        _check_base64(resource, obj, "binaryData")
    if resource.id in (DEPLOYMENTS.id, REPLICA_SETS.id, DAEMON_SETS.id):
        template = spec_of(obj).get("template")
        if isinstance(template, dict) and isinstance(template.get("spec"), dict):
            template.setdefault("metadata", {})
            pods.complete_template(template["spec"])


def _check_base64(resource: Resource, obj: Obj, field: str) -> None:
    for name, text in (obj.get(field) or {}).items():
        try:
            base64.b64decode(text, validate=True)
        except ValueError:
            raise problems.bad_request(f"{resource.kind}.{field}.{name}: illegal base64 data") from None


def _complete_workload(resource: Resource, obj: Obj) -> None:
    obj["status"] = {}
    spec = obj.setdefault("spec", {})
    match resource.id:
        case DEPLOYMENTS.id:
            spec.setdefault("replicas", 1)
            rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
            spec.setdefault("strategy", rolling)
            spec.setdefault("revisionHistoryLimit", 10)
            spec.setdefault("progressDeadlineSeconds", 600)
        case REPLICA_SETS.id:
            spec.setdefault("replicas", 1)
            obj["status"] = {"replicas": 0}
        case DAEMON_SETS.id:
            rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
            spec.setdefault("updateStrategy", rolling)
            counts = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
            obj["status"] = dict.fromkeys(counts, 0)


def _complete_definition(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.get("names") or {}
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})


def _check_service_account(pod: Obj, store: Store) -> None:
    name, namespace = spec_of(pod).get("serviceAccountName", "default"), meta(pod).get("namespace") or ""
    if store.find(SERVICE_ACCOUNTS, Key(namespace, name)) is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise problems.forbidden("pods", meta(pod).get("name") or meta(pod).get("generateName") or "", why)


def _metadata_causes(resource: Resource, obj: Obj) -> Iterator[Cause]:
    fields = meta(obj)
    name, prefix = fields.get("name"), fields.get("generateName")
    if not name and not prefix:
        yield Cause("metadata.name", "Required value: name or generateName is required", _REQUIRED)
    elif name and not _name_rule(resource)(str(name)):
        text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
        yield Cause("metadata.name", f'Invalid value: "{name}": {text}')
    yield from _lacking(
        fields.get("ownerReferences"), "metadata.ownerReferences", ("apiVersion", "kind", "name", "uid")
    )
    for key, value in labels_of(obj).items():
        if not _LABEL_KEY.match(str(key)):
            yield Cause("metadata.labels", f'Invalid value: "{key}": is no valid label key')
        elif not isinstance(value, str) or not _LABEL_VALUE.match(value):
            yield Cause("metadata.labels", f'Invalid value: "{value}": is no valid label value')


def _status_causes(obj: Obj) -> Iterator[Cause]:
    status = status_of(obj)
    yield from _lacking(status.get("conditions"), "status.conditions", ("type", "status"))
    for field in ("containerStatuses", "initContainerStatuses"):
        yield from _lacking(status.get(field), f"status.{field}", ("name",))
    for field in ("capacity", "allocatable"):
        for name, amount in (status.get(field) or {}).items():
            try:
                quantities.parse(amount)
            except ValueError:
                yield Cause(f"status.{field}[{name}]", f'Invalid value: "{amount}": is no quantity')


def _lacking(items: list[Obj] | None, path: str, names: tuple[str, ...]) -> Iterator[Cause]:
    for index, item in enumerate(items or []):
        for name in names:
            if not item.get(name) or not isinstance(item[name], str):
                yield Cause(f"{path}[{index}].{name}", "Required value", _REQUIRED)


def _taint_causes(taints: list[Obj] | None) -> Iterator[Cause]:
    yield from _lacking(taints, "spec.taints", ("key", "effect"))
    for index, taint in enumerate(taints or []):
        try:
            unix_s(taint.get("timeAdded") or EPOCH)
        except ValueError:
            yield Cause(f"spec.taints[{index}].timeAdded", f'Invalid value: "{taint["timeAdded"]}": is no time')


def _name_rule(resource: Resource) -> Callable[[str], bool]:
    if resource.id in (NAMESPACES.id, SERVICES.id):
        return lambda name: len(name) <= 63 and bool(_LABEL_NAME.match(name))
    if resource.group == "rbac.authorization.k8s.io":
        return lambda name: bool(_PATH_SEGMENT.match(name))
    return lambda name: len(name) <= 253 and bool(_SUBDOMAIN.match(name))


def _causes(resource: Resource, obj: Obj) -> list[Cause]:
    if not resource.custom:
        broken = list(_status_causes(obj))
        if broken:
            return broken
    match resource.id:
        case NODES.id:
            return list(_taint_causes(spec_of(obj).get("taints")))
        case PODS.id:
            return pods.causes(spec_of(obj), "spec")
        case DEPLOYMENTS.id | REPLICA_SETS.id | DAEMON_SETS.id:
            return _workload_causes(obj)
        case DEFINITIONS.id:
            return _definition_causes(obj)
    return []


def _workload_causes(obj: Obj) -> list[Cause]:
    spec = spec_of(obj)
    if not spec.get("selector"):
        return [Cause("spec.selector", "Required value", _REQUIRED)]
    template = spec.get("template") or {}
    found = pods.causes(template.get("spec") or {}, "spec.template.spec")
    if not by_spec(spec["selector"])({"metadata": template.get("metadata") or {}}):
        text = "Invalid value: `selector` does not match template `labels`"
        found.append(Cause("spec.template.metadata.labels", text))
    replicas = spec.get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        found.append(Cause("spec.replicas", "Invalid value: must be greater than or equal to 0"))
    for field in ("strategy", "updateStrategy"):
        for name, value in ((spec.get(field) or {}).get("rollingUpdate") or {}).items():
            if not isinstance(value, int) and not _SHARE.match(str(value)):
                text = f'Invalid value: "{value}": must be a number or a percentage'
                found.append(Cause(f"spec.{field}.rollingUpdate.{name}", text))
    return found


def _definition_causes(obj: Obj) -> list[Cause]:
    spec, found = spec_of(obj), []
    names = spec.get("names") or {}
    for path, value in (
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
        ("spec.scope", spec.get("scope")),
        ("spec.versions", spec.get("versions")),
    ):
        if not value:
            found.append(Cause(path, "Required value", _REQUIRED))
    if not found and meta(obj).get("name") != f"{names['plural']}.{spec['group']}":
        text = f'Invalid value: "{meta(obj).get("name")}": must be spec.names.plural+"."+spec.group'
        found.append(Cause("metadata.name", text))
    if not found and sum(bool(each.get("storage")) for each in spec["versions"]) != 1:
        found.append(Cause("spec.versions", "Invalid value: must have exactly one version marked as storage version"))
    return found


def _refuse(resource: Resource, obj: Obj, causes: list[Cause]) -> None:
    if causes:
        name = meta(obj).get("name") or meta(obj).get("generateName") or ""
        raise problems.invalid(resource.kind, name, causes, resource.group)
