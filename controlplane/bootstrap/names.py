"""What things are called in a cluster. They are never renamed: an old name would be left behind, with its rights."""

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
    """Which pods belong to a Deployment or a DaemonSet; Kubernetes lets nobody change that afterwards."""
    return {APP_LABEL: f"tradewind-{component}"}


def cluster_wide(namespace: str, component: str) -> str:
    """Roles of the whole cluster have no namespace: two fleets in one cluster must not share one."""
    return f"tradewind:{namespace}:{component}"


def title(manifest: Manifest) -> str:
    fields = manifest["metadata"]
    return f"{manifest['kind']} {'/'.join(filter(None, (fields.get('namespace'), fields['name'])))}"
