"""The workloads of each cluster: one cluster-controller, and a notice watcher on each node of a job."""

from typing import Any

from controlplane.bootstrap.names import BUS_SECRET, CONTROLLER, DIGEST_ANNOTATION, NOTICE, WORKER, labels, selector
from controlplane.bootstrap.settings import BootstrapSettings, Place
from messages.labels import JOB_LABEL, NATS_CREDENTIALS_KEY, NATS_URL_KEY
from runtime.kubernetes.paths import Manifest

CREDENTIALS_FOLDER = "/etc/tradewind"
SCRATCH_FOLDER = "/scratch"
USER_ID = 10_001
"""The user of the image. The pod names it, so that the node can check that it is not root."""


def controller(settings: BootstrapSettings, place: Place, digest: str, *, has_credentials: bool) -> Manifest:
    env = [
        *_common_env(settings, place),
        *_values(
            TRADEWIND_REGION=place.region,
            TRADEWIND_IMAGE=settings.image,
            TRADEWIND_PULL_POLICY=settings.pull_policy,
            TRADEWIND_PULL_SECRETS=",".join(settings.pull_secrets),
            TRADEWIND_WORKER_ACCOUNT=WORKER,
            TRADEWIND_BUS_SECRET=BUS_SECRET,
            TRADEWIND_NODE_TAINTS=",".join(settings.node_taints),
            TRADEWIND_SHUTDOWN_GRACE_S=str(settings.shutdown_grace_s),
        ),
        {"name": "TRADEWIND_NATS_URL", "valueFrom": {"secretKeyRef": {"name": BUS_SECRET, "key": NATS_URL_KEY}}},
    ]
    volumes, mounts = _scratch()
    if has_credentials:
        env += _values(TRADEWIND_NATS_CREDENTIALS=f"{CREDENTIALS_FOLDER}/{NATS_CREDENTIALS_KEY}")
        items = [{"key": NATS_CREDENTIALS_KEY, "path": NATS_CREDENTIALS_KEY}]
        volumes.append({"name": "bus", "secret": {"secretName": BUS_SECRET, "items": items}})
        mounts.append({"name": "bus", "mountPath": CREDENTIALS_FOLDER, "readOnly": True})
    resources = {
        "requests": {"cpu": settings.controller_cpu, "memory": settings.controller_memory},
        "limits": {"memory": settings.controller_memory_limit},
    }
    pod = {
        **_pod(settings, CONTROLLER, "agents.cluster.kubernetes", env, resources, volumes, mounts),
        "affinity": _on_nodes_with_job("DoesNotExist"),
        "terminationGracePeriodSeconds": 10,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(settings, CONTROLLER),
        "spec": {
            "replicas": 1,
            # Never run two at once: a second controller refuses to start beside the first.
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": selector(CONTROLLER)},
            "template": _template(settings, CONTROLLER, digest, pod),
        },
    }


def notice(settings: BootstrapSettings, place: Place, digest: str) -> Manifest:
    node = {"name": "TRADEWIND_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    env = [*_common_env(settings, place), *_values(TRADEWIND_NOTICE_S=str(settings.shutdown_grace_s)), node]
    resources = {"requests": {"cpu": "10m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}
    volumes, mounts = _scratch()
    pod = {
        **_pod(settings, NOTICE, "agents.notice", env, resources, volumes, mounts),
        # Workload identity hides the notice from pods that do not use the node's network.
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "affinity": _on_nodes_with_job("Exists"),
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(settings, NOTICE),
        "spec": {
            "revisionHistoryLimit": 2,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}},
            "selector": {"matchLabels": selector(NOTICE)},
            "template": _template(settings, NOTICE, digest, pod),
        },
    }


def _metadata(settings: BootstrapSettings, component: str) -> Manifest:
    return {"name": component, "namespace": settings.namespace, "labels": labels(settings.fleet, component)}


def _template(settings: BootstrapSettings, component: str, digest: str, pod: Manifest) -> Manifest:
    """A pod template with a digest of the secrets. Pods read secrets when they start; a new digest restarts them."""
    return {
        "metadata": {
            "labels": {**labels(settings.fleet, component), **selector(component)},
            "annotations": {DIGEST_ANNOTATION: digest},
        },
        "spec": pod,
    }


def _pod(
    settings: BootstrapSettings,
    component: str,
    module: str,
    env: list[Manifest],
    resources: Manifest,
    volumes: list[Manifest],
    mounts: list[Manifest],
) -> Manifest:
    container = {
        "name": component,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["python", "-m", module],
        "env": env,
        "resources": resources,
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod: dict[str, Any] = {
        "serviceAccountName": component,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    if settings.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    return pod


def _common_env(settings: BootstrapSettings, place: Place) -> list[Manifest]:
    return _values(
        TRADEWIND_CLUSTER=place.cluster,
        TRADEWIND_CLOUD=place.cloud,
        TRADEWIND_NAMESPACE=settings.namespace,
        TRADEWIND_LOG="json",
        TRADEWIND_LOG_LEVEL=settings.log_level,
        TMPDIR=SCRATCH_FOLDER,
    )


def _values(**given: str) -> list[Manifest]:
    """Environment variables without empty ones: a server drops these, so each apply would look like a change."""
    return [{"name": name, "value": value} for name, value in given.items() if value]


def _scratch() -> tuple[list[Manifest], list[Manifest]]:
    """The only writable volume of the container."""
    return (
        [{"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}}],
        [{"name": "scratch", "mountPath": SCRATCH_FOLDER}],
    )


def _on_nodes_with_job(operator: str) -> Manifest:
    """An affinity to nodes of a job, or to other nodes. The controller avoids nodes of a job: they may be preempted."""
    terms = [{"matchExpressions": [{"key": JOB_LABEL, "operator": operator}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
