"""Labels and taints of GKE nodes, and the source of their notices."""

from agents.clouds.gke.metadata import GceMetadata
from agents.clouds.interface import Machine, NodeTraits, NoticeOptions, NoticeSource

METADATA_HOST = "metadata.google.internal"
MAINTENANCE_S = 60.0
GPU_MAINTENANCE_S = 3600.0
"""Seconds of notice for an on-demand machine. A machine with GPUs cannot migrate and gets its notice earlier."""


class GkeCloud:
    nodes = NodeTraits(
        pool_label="cloud.google.com/gke-nodepool",
        spot_labels=(("cloud.google.com/gke-spot", "true"), ("cloud.google.com/gke-preemptible", "true")),
        accelerator_label="cloud.google.com/gke-accelerator",
        going_taints=("cloud.google.com/impending-node-termination",),
        driver_folder="/usr/local/nvidia",
        system_pods_s=15.0,
    )
    metadata_variable = "GCE_METADATA_HOST"

    def notices(self, machine: Machine, options: NoticeOptions) -> NoticeSource:
        return GceMetadata(options.metadata_host or METADATA_HOST, options.notice_s, maintenance_s(machine, options))


def maintenance_s(machine: Machine, options: NoticeOptions) -> float:
    """Seconds from the announcement of host maintenance to the end of the machine, as Compute Engine documents it."""
    if options.maintenance_s is not None:
        return options.maintenance_s
    if machine.is_spot:
        return options.notice_s  # host maintenance preempts a spot machine
    return GPU_MAINTENANCE_S if machine.has_gpus else MAINTENANCE_S


CLOUD = GkeCloud()
