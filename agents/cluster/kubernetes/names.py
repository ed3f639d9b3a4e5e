"""What things are called in a cluster, by us, by Kubernetes and by the cloud."""

WORKER_APP = "tradewind-worker"
UID_LABEL = "tradewind-uid"

AGENT_CONTAINER = "agent"
HOST_CONTAINER = "host"

ZONE_LABEL = "topology.kubernetes.io/zone"
HOST_LABEL = "kubernetes.io/hostname"
ACCELERATOR_LABEL = "cloud.google.com/gke-accelerator"
SPOT_LABELS = ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible")
POOL_LABEL = "cloud.google.com/gke-nodepool"
GPU_RESOURCE = "nvidia.com/gpu"

NODES_PATH = "/api/v1/nodes"


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
