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
from runtime.settings import read_settings

ENDING_S = 5.0
"""What an agent needs to end its trainers and itself after a notice is over."""
TAINTS_PATTERN = r"^([^=:,]+=[^=:,]*:(NoSchedule|PreferNoSchedule|NoExecute)(,|\Z))*\Z"
KUBECONFIG_VARIABLE = "KUBECONFIG"


class KubernetesSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: Name
    region: str = ""
    """Where the cluster is; ranks of one region become neighbours."""
    cloud: str = DEFAULT
    """The kind of the cloud that the cluster is in."""
    namespace: Name = "tradewind"
    """Where the pods of workers are."""
    kubeconfig: str | None = None
    """How to reach the API server; KUBECONFIG if not given, else the pod's own service account."""
    max_workers: Annotated[int, Meta(ge=1, le=20_000)] = 1000
    """Of all jobs together; a command that asks for more is refused."""
    end_grace_s: Annotated[float, Meta(gt=0, le=600)] | None = None
    """From SIGTERM to SIGKILL of a worker; 5 s more than its agent takes for a hand-over if not given."""
    lost_after_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    """A pod on a node that is not ready, whose worker is not heard of for so long either, is replaced."""
    hostless_s: Annotated[float, Meta(gt=0, le=3600)] = 20.0
    """An agent that is still there so long after its host has ended is ended too: it waits for one that cannot come."""
    image: Annotated[str, Meta(min_length=1)] = "tradewind:latest"
    """Ours: of the agent, and of the host where a job has none of its own."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: str = ""
    """Names of secrets for pulling images, with commas between."""
    node_taints: Annotated[str, Meta(pattern=TAINTS_PATTERN, description="key=value:effect, with commas between")] = ""
    """Taints of the nodes that workers tolerate, besides those of their job and of GPUs."""
    shutdown_grace_s: Annotated[float, Meta(ge=30, le=3600)] = 30.0
    """Seconds that a node delays its end when it is preempted; the cloud reserves the last of them for system pods."""
    worker_account: str = "default"
    """The service account of workers; no token of it is given to them."""
    worker_command: str = "python -P -m tradewind worker"
    """Starts an agent in our image."""
    host_file: str | None = None
    """`tradewind/host/__main__.py` in our image; where this controller has it, if not given."""
    nats_url: str = "nats://127.0.0.1:4222"
    nats_credentials: str | None = None
    bus_secret: str | None = None
    """The secret from which workers take the bus's address and, where this controller has any, credentials; else they
    are given the controller's own address."""
    connect_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    takeover_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """How long a controller that is on its way out is waited for."""

    @property
    def worker_argv(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.worker_command))

    @property
    def nodes(self) -> NodeTraits:
        return cloud_of(self.cloud).nodes

    @property
    def notice_s(self) -> float:
        """What a worker has from SIGTERM on when its node goes."""
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
    named = {"kubeconfig": environ.get(KUBECONFIG_VARIABLE) or None}
    given = {} if environ.get("TRADEWIND_KUBECONFIG") else named
    settings = read_settings(KubernetesSettings, environ, given)
    cloud_of(settings.cloud)  # an unknown one is a mistake in the settings too
    return settings
