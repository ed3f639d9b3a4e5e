"""What must hold after every event."""

from collections import Counter
from collections.abc import Iterator

from simulator.cloud.model import quotas, spot, view
from simulator.cloud.model.state import Cloud


def broken(cloud: Cloud) -> list[str]:
    """One message for each broken invariant."""
    return [*_capacity(cloud), *_groups(cloud), *_identity(cloud), *_bill(cloud)]


def _capacity(cloud: Cloud) -> Iterator[str]:
    for market, amount in spot.held(cloud, noticed_too=False).items():
        if amount > spot.capacity_of(cloud, market):
            yield f"{market}: {amount} held of {spot.capacity_of(cloud, market)}"


def _groups(cloud: Cloud) -> Iterator[str]:
    for pool in cloud.pools.values():
        for group in pool.groups:
            there = len(view.members(cloud, pool.key, group.zone))
            if not pool.deleting and there != group.target:
                yield f"{group.name}: {there} nodes, target {group.target}"


def _identity(cloud: Cloud) -> Iterator[str]:
    ids = Counter(node.instance.id for node in cloud.nodes.values() if node.instance is not None)
    yield from (f"instance {each}: used by {count} nodes" for each, count in ids.items() if count > 1)
    for node in cloud.nodes.values():
        if node.pool not in cloud.pools:
            yield f"{node.name}: its pool is missing"
    for pool in cloud.pools.values():
        if pool.key.of not in cloud.clusters:
            yield f"{pool.key}: its cluster is missing"


def _bill(cloud: Cloud) -> Iterator[str]:
    running = Counter(
        (cloud.pools[node.pool].uid, node.zone) for node in cloud.nodes.values() if node.instance is not None
    )
    for key, line in cloud.lines.items():
        if line.nodes != running[key]:
            yield f"{line.pool.pool} in {line.zone}: {line.nodes} billed, {running[key]} run"


def over_quota(cloud: Cloud) -> list[str]:
    """Usage above the quota, which happens only after the quota was lowered."""
    return [
        f"{metric} in {region}: {amount} used of {quotas.limit_of(cloud, project, region, metric)}"
        for (project, region, metric), amount in quotas.usage(cloud).items()
        if amount > quotas.limit_of(cloud, project, region, metric)
    ]
