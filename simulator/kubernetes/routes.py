"""Parses the path of a request."""

from dataclasses import dataclass

from simulator.kubernetes.problems import no_such_path
from simulator.kubernetes.resources import Registry, Resource


@dataclass(frozen=True, slots=True)
class Target:
    """A collection, an object in it, or a subresource of that object."""

    resource: Resource
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def api_version(self) -> str:
        return self.resource.api_version_at(self.version)


@dataclass(frozen=True, slots=True)
class Discovery:
    """A discovery path: `/api`, `/apis`, a group, or the kinds of a version of a group."""

    group: str | None = None
    version: str | None = None
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class Plain:
    """A path that needs no authorization, such as `/version` or `/healthz`."""

    name: str


Route = Target | Discovery | Plain
_PLAIN = frozenset({"version", "healthz", "livez", "readyz"})


def parse(path: str, registry: Registry) -> Route:
    parts = [part for part in path.split("/") if part]
    match parts:
        case [name, *_] if name in _PLAIN:
            return Plain(name)
        case ["api"]:
            return Discovery(legacy=True)
        case ["api", version]:
            return Discovery("", version, legacy=True)
        case ["api", version, *rest]:
            return _target("", version, rest, registry)
        case ["apis"]:
            return Discovery()
        case ["apis", group]:
            return Discovery(group)
        case ["apis", group, version]:
            return Discovery(group, version)
        case ["apis", group, version, *rest]:
            return _target(group, version, rest, registry)
    raise no_such_path()


def _target(group: str, version: str, parts: list[str], registry: Registry) -> Target:
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and registry.find(group, version, parts[2]) is not None:
        namespace, parts = parts[1], parts[2:]
    resource = registry.find(group, version, parts[0])
    if resource is None or len(parts) > 3 or (bool(namespace) and not resource.namespaced):
        raise no_such_path()
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if resource.namespaced and name and not namespace:
        raise no_such_path()
    known = (*resource.subresources, *(("status",) if resource.has_status else ()))
    if subresource and subresource not in known:
        raise no_such_path()
    return Target(resource, version, namespace, name, subresource)
