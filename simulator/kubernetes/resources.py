"""The table of served kinds. Custom resource definitions add rows while the server runs."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from simulator.kubernetes.objects import Obj, spec_of

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Resource:
    group: str
    version: str
    """The stored and preferred version."""
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    has_status: bool = False
    subresources: tuple[str, ...] = ()
    """Subresources apart from status."""
    created_by_put: bool = False
    delete_answers_object: bool = False
    """The answer to a deletion is the last state of the object, not a Status."""
    has_generation: bool = False
    custom: bool = False
    other_versions: tuple[str, ...] = ()
    schemas: dict[str, Obj] = field(default_factory=dict, compare=False)
    """Schemas of custom resources, by version."""

    @property
    def id(self) -> tuple[str, str]:
        return self.group, self.plural

    @property
    def title(self) -> str:
        """Name in messages: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return self.api_version_at(self.version)

    @property
    def versions(self) -> tuple[str, ...]:
        return self.version, *self.other_versions

    @property
    def singular(self) -> str:
        return self.kind.lower()

    def api_version_at(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version


NAMESPACES = Resource(
    "", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",), has_status=True,
    subresources=("finalize",), delete_answers_object=True,
)  # fmt: skip
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, short_names=("no",), has_status=True)
PODS = Resource(
    "", "v1", "pods", "Pod", short_names=("po",), has_status=True, subresources=("log", "eviction", "binding"),
    delete_answers_object=True, has_generation=True,
)  # fmt: skip
EVENTS = Resource("", "v1", "events", "Event", short_names=("ev",), created_by_put=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource(
    "", "v1", "services", "Service", short_names=("svc",), has_status=True, created_by_put=True,
    delete_answers_object=True,
)  # fmt: skip
SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",), subresources=("token",),
    delete_answers_object=True,
)  # fmt: skip
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", created_by_put=True)
DEPLOYMENTS = Resource(
    "apps", "v1", "deployments", "Deployment", short_names=("deploy",), has_status=True, subresources=("scale",),
    has_generation=True,
)  # fmt: skip
REPLICA_SETS = Resource(
    "apps", "v1", "replicasets", "ReplicaSet", short_names=("rs",), has_status=True, subresources=("scale",),
    has_generation=True,
)  # fmt: skip
DAEMON_SETS = Resource(
    "apps", "v1", "daemonsets", "DaemonSet", short_names=("ds",), has_status=True, has_generation=True
)  # fmt: skip
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", created_by_put=True)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", created_by_put=True)
CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False, created_by_put=True
)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False,
    created_by_put=True,
)  # fmt: skip
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short_names=("pc",)
)
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False,
    short_names=("crd", "crds"), has_status=True, has_generation=True,
)  # fmt: skip

BUILT_IN = (
    NAMESPACES, NODES, PODS, EVENTS, CONFIG_MAPS, SECRETS, SERVICES, SERVICE_ACCOUNTS, LEASES, DEPLOYMENTS,
    REPLICA_SETS, DAEMON_SETS, ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, PRIORITY_CLASSES,
    DEFINITIONS,
)  # fmt: skip


class Registry:
    """All kinds of one cluster."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Resource] = {each.id: each for each in BUILT_IN}

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._known.values()))

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        found = self._known.get((group, plural))
        return found if found is not None and version in found.versions else None

    def define(self, definition: Obj) -> Resource:
        """Adds or replaces the kind of a custom resource definition."""
        resource = defined(definition)
        self._known[resource.id] = resource
        return resource

    def forget(self, definition: Obj) -> None:
        self._known.pop((spec_of(definition)["group"], spec_of(definition)["names"]["plural"]), None)


def defined(definition: Obj) -> Resource:
    spec = spec_of(definition)
    served = [each for each in spec["versions"] if each.get("served", True)]
    stored = next((each for each in spec["versions"] if each.get("storage")), spec["versions"][0])
    preferred = stored if stored in served or not served else served[0]
    return Resource(
        spec["group"],
        preferred["name"],
        spec["names"]["plural"],
        spec["names"]["kind"],
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        short_names=tuple(spec["names"].get("shortNames") or ()),
        has_status=any("status" in (each.get("subresources") or {}) for each in spec["versions"]),
        has_generation=True,
        custom=True,
        other_versions=tuple(each["name"] for each in served if each is not preferred),
        schemas={
            each["name"]: each["schema"]["openAPIV3Schema"]
            for each in spec["versions"]
            if (each.get("schema") or {}).get("openAPIV3Schema")
        },
    )
