"""Discovery: the groups, versions and kinds that the server has."""

from simulator.kubernetes.objects import Obj
from simulator.kubernetes.problems import no_such_path
from simulator.kubernetes.resources import VERBS, Registry, Resource
from simulator.kubernetes.routes import Discovery

VERSION: Obj = {
    "major": "1",
    "minor": "35",
    "gitVersion": "v1.35.0-tradewind-simulator",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "go1.25.0",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_STATUS_VERBS = ("get", "patch", "update")
_SUBRESOURCE_KINDS = {
    "log": ("Pod", "", ("get",)),
    "eviction": ("Eviction", "policy/v1", ("create",)),
    "binding": ("Binding", "", ("create",)),
    "token": ("TokenRequest", "authentication.k8s.io/v1", ("create",)),
    "scale": ("Scale", "autoscaling/v1", _STATUS_VERBS),
    "finalize": ("Namespace", "", ("update",)),
}


def answer(asked: Discovery, registry: Registry, address: str) -> Obj:
    if asked.legacy and asked.version is None:
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
    if asked.group is None:
        groups = [_group(name, registry) for name in _group_names(registry)]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if asked.version is None:
        if asked.group not in _group_names(registry):
            raise no_such_path()
        return {"apiVersion": "v1", **_group(asked.group, registry)}
    return _resources(asked.group, asked.version, registry)


def _group_names(registry: Registry) -> list[str]:
    return list(dict.fromkeys(each.group for each in registry if each.group))


def _group(name: str, registry: Registry) -> Obj:
    versions = list(dict.fromkeys(v for each in registry if each.group == name for v in each.versions))
    reported = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "name": name, "versions": reported, "preferredVersion": reported[0]}


def _resources(group: str, version: str, registry: Registry) -> Obj:
    served = [each for each in registry if each.group == group and version in each.versions]
    if not served:
        raise no_such_path()
    group_version = served[0].api_version_at(version)
    listed = [entry for each in served for entry in _entries(each)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _entries(resource: Resource) -> list[Obj]:
    common = {"namespaced": resource.namespaced, "singularName": ""}
    whole: Obj = {
        **common,
        "name": resource.plural,
        "singularName": resource.singular,
        "kind": resource.kind,
        "verbs": list(VERBS),
    }
    if resource.short_names:
        whole["shortNames"] = list(resource.short_names)
    entries = [whole]
    if resource.has_status:
        name = f"{resource.plural}/status"
        entries.append({**common, "name": name, "kind": resource.kind, "verbs": list(_STATUS_VERBS)})
    for subresource in resource.subresources:
        kind, group_version, verbs = _SUBRESOURCE_KINDS[subresource]
        entry: Obj = {**common, "name": f"{resource.plural}/{subresource}", "kind": kind, "verbs": list(verbs)}
        if group_version:
            entry["group"], _, entry["version"] = group_version.rpartition("/")
        entries.append(entry)
    return entries
