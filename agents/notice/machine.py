"""The machine that the daemon runs on, as its Kubernetes node describes it."""

from dataclasses import dataclass

from agents.cluster.kubernetes.client import ApiRefused, ApiUnavailable, KubernetesApi
from agents.cluster.kubernetes.names import ACCELERATOR_LABEL, NODES_PATH, SPOT_LABELS
from agents.cluster.kubernetes.objects import Node
from agents.cluster.kubernetes.pauses import Pauses
from messages.decoding import Undecodable, decode
from runtime.logs import WhyLog, logger

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
    pauses, log_trouble = Pauses(PAUSE_S, PAUSE_MOST_S), WhyLog(logger(node=node), "node_not_read_yet")
    while True:
        try:
            return machine_of(decode(await api.get(f"{NODES_PATH}/{node}"), Node))
        except (ApiUnavailable, ApiRefused, Undecodable) as error:
            log_trouble(str(error))
            await pauses.wait(error.retry_after_s if isinstance(error, ApiUnavailable) else 0.0)


def machine_of(node: Node) -> Machine:
    labels = node.metadata.labels or {}
    return Machine(
        boot_id=node.status.node_info.boot_id,
        is_spot=any(labels.get(label) == "true" for label in SPOT_LABELS),
        has_gpus=ACCELERATOR_LABEL in labels,
    )
