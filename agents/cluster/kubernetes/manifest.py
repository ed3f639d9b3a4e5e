"""The manifest of a worker's pod, built from the job's template. Pure.

Two containers share a folder and talk over a socket in it: the agent, and the host with the job's image. If the job has
its own image, an init container first copies the host's files into the folder. A pod is never restarted: a new pod with
a new uid replaces it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agents.clouds.interface import NodeTraits
from messages.clusters import WorkerTemplate
from messages.ids import ClusterName, JobName
from messages.labels import (
    APP_LABEL,
    HOST_SOCKET,
    JOB_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    NATS_CREDENTIALS_KEY,
    NATS_URL_KEY,
    NOTICED_LABEL,
)
from runtime.kubernetes.paths import Manifest
from tradewind.protocol import variables

WORKER_APP = "tradewind-worker"
UID_LABEL = "tradewind-uid"
AGENT_CONTAINER = "agent"
HOST_CONTAINER = "host"
HOST_LABEL = "kubernetes.io/hostname"
GPU_RESOURCE = "nvidia.com/gpu"

RUN_FOLDER = "/run/tradewind"
CODE_FOLDER = f"{RUN_FOLDER}/code"
CREDENTIALS_FOLDER = "/etc/tradewind"
CONNECT_S = 50
"""Seconds that an agent tries to connect to the bus. The controller waits a minute for a worker's first heartbeat."""
HOST_WITHIN_S = 3600
"""Seconds that agent and host wait for each other. Images for training are large and slow to pull."""


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What all workers of a cluster have in common."""

    cluster: ClusterName
    namespace: str
    image: str
    worker_argv: tuple[str, ...]
    host_package: str
    """The folder of the package `tradewind` in our image."""
    nodes: NodeTraits
    region: str = ""
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()
    """Taints of the fleet's nodes, which pods tolerate."""
    grace_s: int = 30
    """Seconds from SIGTERM to SIGKILL of a pod, unless its deletion gives less."""
    notice_s: float = 15.0
    """Seconds of notice that an agent assumes at SIGTERM."""
    worker_account: str = "default"
    nats_url: str = ""
    bus_secret: str | None = None
    has_credentials: bool = False
    """True if the bus secret holds credentials."""


def worker_pod(plan: PodPlan, uid: str, job: JobName, template: WorkerTemplate) -> Manifest:
    labels = {APP_LABEL: WORKER_APP, JOB_LABEL: job, UID_LABEL: uid, MANAGED_BY_LABEL: MANAGER}
    own_image = template.pod.image is not None
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": uid,
            "namespace": plan.namespace,
            "labels": labels,
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": plan.grace_s,
            "serviceAccountName": plan.worker_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": {JOB_LABEL: job},
            "tolerations": [
                {"key": JOB_LABEL, "operator": "Equal", "value": job, "effect": "NoSchedule"},
                {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"},
                *({"operator": "Equal", **taint._asdict()} for taint in plan.taints),
            ],
            "affinity": {**_one_worker_on_a_node(), **_no_notice()},
            **({"initContainers": [_host_files(plan)]} if own_image else {}),
            "containers": [_agent(plan, uid, job, template), _host(plan, uid, template)],
            "volumes": _volumes(plan),
            **({"imagePullSecrets": [{"name": name} for name in plan.pull_secrets]} if plan.pull_secrets else {}),
        },
    }


def _agent(plan: PodPlan, uid: str, job: JobName, template: WorkerTemplate) -> Manifest:
    mounts = [{"name": "run", "mountPath": RUN_FOLDER}]
    if plan.has_credentials:
        mounts.append({"name": "bus", "mountPath": CREDENTIALS_FOLDER})
    return {
        "name": AGENT_CONTAINER,
        "image": plan.image,
        "imagePullPolicy": plan.pull_policy,
        "command": [
            *(*plan.worker_argv, "--job", job, "--cluster", plan.cluster, "--uid", uid),
            *("--slots", str(template.slots), "--run-dir", RUN_FOLDER, "--external-host"),
        ],
        "env": [
            *_bus_env(plan),
            _value("TRADEWIND_REGION", plan.region),
            _value("TRADEWIND_CONNECT_TIMEOUT_S", str(CONNECT_S)),
            _value("TRADEWIND_HOST_WITHIN_S", str(HOST_WITHIN_S)),
            # Nothing restarts the host in this pod, so one loss is final.
            _value("TRADEWIND_HOST_LOSSES", "1"),
            _value("TRADEWIND_NOTICE_S", f"{plan.notice_s:g}"),
            _field("TRADEWIND_ADDRESS", "status.podIP"),
            _field("TRADEWIND_NODE", "spec.nodeName"),
            _value("TRADEWIND_LOG", "json"),
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _host(plan: PodPlan, uid: str, template: WorkerTemplate) -> Manifest:
    pod = template.pod
    folder = plan.host_package if pod.image is None else f"{CODE_FOLDER}/tradewind"
    return {
        "name": HOST_CONTAINER,
        "image": pod.image or plan.image,
        "imagePullPolicy": plan.pull_policy,
        "command": [
            *(template.python or "python", f"{folder}/host/__main__.py"),
            *("--socket", f"{RUN_FOLDER}/{uid}/{HOST_SOCKET}", "--wait-s", str(HOST_WITHIN_S)),
        ],
        "env": [
            *(_gpu_env(plan, template) if pod.gpu else ()),
            *(_value(name, _literal(value)) for name, value in template.env.items()),
        ],
        "envFrom": [{"secretRef": {"name": name}} for name in pod.secrets],
        "resources": _resources(template),
        # Data loaders share tensors through /dev/shm; the default size of a container is too small.
        "volumeMounts": [{"name": "run", "mountPath": RUN_FOLDER}, {"name": "shm", "mountPath": "/dev/shm"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _gpu_env(plan: PodPlan, template: WorkerTemplate) -> list[Manifest]:
    """Returns the folder of the driver, which the host adds to its paths: a path variable would replace the image's."""
    folder = plan.nodes.driver_folder
    driver = [_value(variables.DRIVER_FOLDER, folder)] if folder else []
    return [*driver, _value(variables.GPUS, str(template.slots))]


def _host_files(plan: PodPlan) -> Manifest:
    script = f"mkdir -p {CODE_FOLDER} && cp -R {plan.host_package} {CODE_FOLDER}/"
    return {
        "name": "host-files",
        "image": plan.image,
        "imagePullPolicy": plan.pull_policy,
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
        "volumeMounts": [{"name": "run", "mountPath": RUN_FOLDER}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _resources(template: WorkerTemplate) -> Manifest:
    pod = template.pod
    asked = {"cpu": pod.cpu, "memory": pod.memory}
    requests = {name: amount for name, amount in asked.items() if amount is not None}
    resources: Manifest = {"requests": requests} if requests else {}
    if pod.gpu:
        resources["limits"] = {GPU_RESOURCE: str(template.slots)}
    return resources


def _bus_env(plan: PodPlan) -> list[Manifest]:
    if plan.bus_secret is None:
        return [_value("TRADEWIND_NATS_URL", plan.nats_url)]
    reference = {"secretKeyRef": {"name": plan.bus_secret, "key": NATS_URL_KEY}}
    env: list[Manifest] = [{"name": "TRADEWIND_NATS_URL", "valueFrom": reference}]
    if plan.has_credentials:
        env.append(_value("TRADEWIND_NATS_CREDENTIALS", f"{CREDENTIALS_FOLDER}/{NATS_CREDENTIALS_KEY}"))
    return env


def _volumes(plan: PodPlan) -> list[Manifest]:
    volumes: list[Manifest] = [
        {"name": "run", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    if plan.has_credentials:
        items = [{"key": NATS_CREDENTIALS_KEY, "path": NATS_CREDENTIALS_KEY}]
        volumes.append({"name": "bus", "secret": {"secretName": plan.bus_secret, "items": items}})
    return volumes


def _one_worker_on_a_node() -> Manifest:
    others: Mapping[str, object] = {"matchLabels": {APP_LABEL: WORKER_APP}}
    term = {"labelSelector": others, "topologyKey": HOST_LABEL}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _no_notice() -> Manifest:
    """Keeps workers off nodes with a notice. Such a node has room when its worker leaves, but will be terminated."""
    terms = [{"matchExpressions": [{"key": NOTICED_LABEL, "operator": "DoesNotExist"}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _value(name: str, value: str) -> Manifest:
    return {"name": name, "value": value}


def _literal(value: str) -> str:
    """Escapes `$`, because Kubernetes expands `$(NAME)`."""
    return value.replace("$", "$$")


def _field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
