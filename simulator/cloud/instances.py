"""Machines as Compute lists them, with the filters by label that are needed."""

import re
from collections.abc import Iterator
from typing import Any

from simulator.cloud.inventory import Wanted, wanting
from simulator.cloud.model.state import Cloud, Instance, Node, Pool, PoolSpec

API = "https://www.googleapis.com/compute/v1"
_FILTER = re.compile(r"(?:labels\.([a-z0-9_-]+)(?::\*|=([a-z0-9_-]*)))?\Z")


def label_filter(text: str) -> Wanted | None:
    """`labels.KEY:*` or `labels.KEY=VALUE`; None where it is another."""
    matched = _FILTER.match(text)
    if matched is None:
        return None
    key, value = matched[1] or "", matched[2]
    return wanting(key if value is None else f"{key}={value}")


def instances_of(cloud: Cloud, project: str, wanted: Wanted) -> Iterator[tuple[Pool, Node, Instance]]:
    for node in sorted(cloud.nodes.values(), key=lambda node: (node.zone, node.name)):
        pool = cloud.pools[node.pool]
        if node.instance is not None and node.pool.project == project and wanted(pool.spec.resource_labels):
            yield pool, node, node.instance


def _interface(spec: PoolSpec) -> dict[str, Any]:
    """Private nodes have no access config, and so no external address."""
    access = [] if spec.private else [{"kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT"}]
    return {"name": "nic0", **({"accessConfigs": access} if access else {})}


def instance_told(pool: Pool, node: Node, instance: Instance, started: str) -> dict[str, Any]:
    spec = pool.spec
    zone = f"{API}/projects/{node.pool.project}/zones/{node.zone}"
    gpus = [{"acceleratorType": f"{zone}/acceleratorTypes/{spec.accelerator}", "acceleratorCount": spec.accelerators}]
    return {
        "kind": "compute#instance",
        "id": instance.id,
        "name": node.name,
        "zone": zone,
        "machineType": f"{zone}/machineTypes/{spec.machine.name}",
        "status": "STOPPING" if instance.is_doomed else "RUNNING",
        "creationTimestamp": started,
        "lastStartTimestamp": started,
        "labels": {**spec.resource_labels, "goog-k8s-node-pool-name": pool.key.pool},
        "networkInterfaces": [_interface(spec)],
        "scheduling": {"provisioningModel": "SPOT" if spec.spot else "STANDARD", "preemptible": spec.spot},
        **({"guestAccelerators": gpus} if spec.accelerator else {}),
    }
