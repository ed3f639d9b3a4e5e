"""The machine that the daemon runs on, as its Kubernetes node describes it."""

from dataclasses import dataclass

from messages.decoding import Undecodable, decode
from runtime.backoff import Backoff
from runtime.kubernetes.client import ApiRefused, ApiUnavailable, KubernetesApi
from runtime.kubernetes.objects import Node
from runtime.kubernetes.paths import NODES_PATH
from runtime.logs import WhyLog, logger

ACCELERATOR_LABEL = "cloud.google.com/gke-accelerator"
SPOT_LABELS = ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible")
PAUSE_S = 0.1
PAUSE_MOST_S = 5.0


@dataclass(frozen=True, slots=True)
class Machine:
    boot_id: str = ""
    """Another after each boot: a notice is for this one only."""
    is_spot: bool = False
    has_gpus: bool = False


async def read_machine(api: KubernetesApi, node: str) -> Machine:
    """Asks the API until it answers."""
    backoff, log_trouble = Backoff(PAUSE_S, PAUSE_MOST_S), WhyLog(logger(node=node), "node_not_read_yet")
    while True:
        try:
            return machine_of(decode(await api.get(f"{NODES_PATH}/{node}"), Node))
        except (ApiUnavailable, ApiRefused, Undecodable) as error:
            log_trouble(str(error))
            await backoff.wait(0.0 if isinstance(error, Undecodable) else error.retry_after_s)


def machine_of(node: Node) -> Machine:
    labels = node.metadata.labels or {}
    return Machine(
        boot_id=node.status.node_info.boot_id,
        is_spot=any(labels.get(label) == "true" for label in SPOT_LABELS),
        has_gpus=ACCELERATOR_LABEL in labels,
    )
