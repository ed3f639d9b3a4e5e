"""Checks objects; each cause names the invalid field."""

import re
from collections.abc import Callable, Iterator

from simulator.kubernetes import pods
from simulator.kubernetes.objects import EPOCH, Obj, labels_of, meta, spec_of, status_of, unix_s
from simulator.kubernetes.problems import Cause
from simulator.kubernetes.resources import (
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    Resource,
)
from simulator.kubernetes.selectors import by_spec

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_PATH_SEGMENT = re.compile(r"^[^/%]+$")
_LABEL_KEY = re.compile(r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
_LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")
_SHARE = re.compile(r"^[0-9]{1,3}%$")
_REQUIRED = "FieldValueRequired"
_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def metadata_causes(resource: Resource, obj: Obj) -> Iterator[Cause]:
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
    for index, finalizer in enumerate(fields.get("finalizers") or []):
        if "/" not in finalizer and finalizer not in _FINALIZERS:
            text = f'Invalid value: "{finalizer}": name is neither a standard finalizer name nor is it fully qualified'
            yield Cause(f"metadata.finalizers[{index}]", text)
    for key, value in labels_of(obj).items():
        if not _LABEL_KEY.match(str(key)):
            yield Cause("metadata.labels", f'Invalid value: "{key}": must be a valid label key')
        elif not isinstance(value, str) or not _LABEL_VALUE.match(value):
            yield Cause("metadata.labels", f'Invalid value: "{value}": must be a valid label value')


def status_causes(obj: Obj) -> Iterator[Cause]:
    status = status_of(obj)
    yield from _lacking(status.get("conditions"), "status.conditions", ("type", "status"))
    for field in ("containerStatuses", "initContainerStatuses"):
        yield from _lacking(status.get(field), f"status.{field}", ("name",))


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
            yield Cause(f"spec.taints[{index}].timeAdded", f'Invalid value: "{taint["timeAdded"]}": must be a time')


def _name_rule(resource: Resource) -> Callable[[str], bool]:
    if resource.id in (NAMESPACES.id, SERVICES.id):
        return lambda name: len(name) <= 63 and bool(_LABEL_NAME.match(name))
    if resource.group == "rbac.authorization.k8s.io":
        return lambda name: bool(_PATH_SEGMENT.match(name))
    return lambda name: len(name) <= 253 and bool(_SUBDOMAIN.match(name))


def content_causes(resource: Resource, obj: Obj) -> list[Cause]:
    if not resource.custom:
        broken = list(status_causes(obj))
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
