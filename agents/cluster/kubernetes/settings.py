"""Settings of the cluster-controller on Kubernetes: `TRADEWIND_<NAME>` in the environment, and `KUBECONFIG`."""

import os
import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from agents.clouds.interface import NodeTraits
from agents.clouds.registry import DEFAULT, cloud_of
from agents.cluster.kubernetes.manifest import Taint
from messages.ids import Name
from runtime.settings import read_settings_with_kubeconfig

ENDING_S = 5.0
"""Seconds that an agent needs to end its trainers and itself after a notice is over."""
TAINTS_PATTERN = r"^([^=:,]+=[^=:,]*:(NoSchedule|PreferNoSchedule|NoExecute)(,|\Z))*\Z"


class KubernetesSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: Name
    region: str = ""
    """Where the cluster is; ranks of one region become neighbours."""
    cloud: str = DEFAULT
    """The kind of the cloud that the cluster is in."""
    namespace: Name = "tradewind"
    """The namespace of the workers' pods."""
    kubeconfig: str | None = None
    """A kubeconfig file for the API server. Default: the file in KUBECONFIG, else the pod's own service account."""
    max_workers: Annotated[int, Meta(ge=1, le=20_000)] = 1000
    """Workers of all jobs together. A command that needs more is refused."""
    end_grace_s: Annotated[float, Meta(gt=0, le=600)] | None = None
    """Seconds from SIGTERM to SIGKILL of a worker. Default: the notice that its agent gets, and 5 s more."""
    lost_after_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    """Seconds after which a pod is replaced if its node is not ready and its worker is silent."""
    hostless_s: Annotated[float, Meta(gt=0, le=3600)] = 20.0
    """Seconds after the end of a host until its agent is ended. Nothing restarts the host that the agent waits for."""
    image: Annotated[str, Meta(min_length=1)] = "tradewind:latest"
    """Tradewind's image: for the agent, and for the host of a job without its own image."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: str = ""
    """Names of secrets for pulling images, separated by commas."""
    node_taints: Annotated[str, Meta(pattern=TAINTS_PATTERN, description="key=value:effect, separated by commas")] = ""
    """Taints of nodes that workers tolerate, in addition to those of their job and of GPUs."""
    shutdown_grace_s: Annotated[float, Meta(ge=30, le=3600)] = 30.0
    """Seconds that a preempted node delays its end. The cloud reserves the last of them for system pods."""
    worker_account: str = "default"
    """The service account of workers. They get no token of it."""
    worker_command: str = "python -P -m tradewind worker"
    """The command that starts an agent in Tradewind's image."""
    host_file: str | None = None
    """Path of `tradewind/host/__main__.py` in Tradewind's image. Default: the path in this controller's image."""
    nats_url: str = "nats://127.0.0.1:4222"
    nats_credentials: str | None = None
    bus_secret: str | None = None
    """The secret with the bus's address, and with credentials if this controller has any. Without a secret, workers get
    the controller's own address."""
    connect_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    takeover_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """Seconds to wait for an earlier controller that is stopping."""

    @property
    def worker_argv(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.worker_command))

    @property
    def nodes(self) -> NodeTraits:
        return cloud_of(self.cloud).nodes

    @property
    def notice_s(self) -> float:
        """Seconds that a worker has from SIGTERM when its node shuts down."""
        return self.shutdown_grace_s - self.nodes.system_pods_s

    @property
    def end_within_s(self) -> float:
        return self.notice_s + ENDING_S if self.end_grace_s is None else self.end_grace_s

    @property
    def taints(self) -> tuple[Taint, ...]:
        return tuple(Taint(*re.split("[=:]", text)) for text in self.node_taints.split(",") if text)

    @property
    def pull_secret_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.pull_secrets.split(",") if name.strip())


def read_kubernetes_settings(environ: Mapping[str, str] = os.environ) -> KubernetesSettings:
    settings = read_settings_with_kubeconfig(KubernetesSettings, environ)
    cloud_of(settings.cloud)  # raises `UserError` for an unknown cloud
    return settings
