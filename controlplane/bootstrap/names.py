"""Names of objects in a cluster. Never rename them: the object with the old name would stay, with its permissions."""

from messages.labels import APP_LABEL, FLEET_LABEL, MANAGED_BY_LABEL, MANAGER
from runtime.kubernetes.paths import Manifest

CONTROLLER = "cluster-controller"
NOTICE = "notice"
WORKER = "worker"
BUS_SECRET = "bus"

DIGEST_ANNOTATION = "tradewind.dev/settings-digest"


def labels(fleet: str, component: str) -> dict[str, str]:
    return {
        MANAGED_BY_LABEL: MANAGER,
        "app.kubernetes.io/name": "tradewind",
        "app.kubernetes.io/component": component,
        FLEET_LABEL: fleet,
    }


def selector(component: str) -> dict[str, str]:
    """The labels of the pods of a Deployment or DaemonSet. Kubernetes does not allow changing a selector."""
    return {APP_LABEL: f"tradewind-{component}"}


def cluster_wide(namespace: str, component: str) -> str:
    """The name of a ClusterRole. It contains the namespace, because two fleets in one cluster must not share a role."""
    return f"tradewind:{namespace}:{component}"


def title(manifest: Manifest) -> str:
    fields = manifest["metadata"]
    return f"{manifest['kind']} {'/'.join(filter(None, (fields.get('namespace'), fields['name'])))}"
