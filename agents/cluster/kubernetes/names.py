"""What things are called in a cluster, by us, by Kubernetes and by the cloud."""

APP_LABEL = "app"
WORKER_APP = "tradewind-worker"
JOB_LABEL = "tradewind-job"
"""On worker pods, on the nodes that they may run on, and the key of the taint that keeps others off those."""
UID_LABEL = "tradewind-uid"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "tradewind"

AGENT_CONTAINER = "agent"
HOST_CONTAINER = "host"

NOTICE_ANNOTATION = "tradewind.dev/notice-deadline"
"""On a node: Unix seconds at which it will be taken."""
NOTICE_WHY_ANNOTATION = "tradewind.dev/notice-why"
NOTICE_BOOT_ANNOTATION = "tradewind.dev/notice-boot"
"""The boot id of the machine that is meant: the next one may get the same node object."""

ZONE_LABEL = "topology.kubernetes.io/zone"
HOST_LABEL = "kubernetes.io/hostname"
NOTICED_LABEL = "tradewind-noticed"
"""On a node with a notice: no further worker is placed there."""
ACCELERATOR_LABEL = "cloud.google.com/gke-accelerator"
SPOT_LABELS = ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible")
POOL_LABEL = "cloud.google.com/gke-nodepool"
GPU_RESOURCE = "nvidia.com/gpu"

NATS_URL_KEY = "nats-url"
NATS_CREDENTIALS_KEY = "nats.creds"
"""Keys of the secret with which workers reach the bus."""

NODES_PATH = "/api/v1/nodes"


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
