"""Instance groups: each creates nodes up to its target, and chooses by itself which nodes it removes."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from simulator.cloud.model import chance, quotas, refusals, spot
from simulator.cloud.model.names import NodeName
from simulator.cloud.model.state import Cloud, Failure, Group, GroupError, Instance, Node, Offer, Pool, Shortage
from simulator.market.markets import Market

MAX_ERRORS = 200
"""Errors that the groups of a pool store. How many Compute stores, and for how long, is not verified."""


def reach_targets(cloud: Cloud, at_s: float) -> Cloud:
    members = defaultdict(list)
    for node in cloud.nodes.values():
        if not node.leaving:
            members[node.pool, node.zone].append(node)
    for pool in cloud.pools.values():
        if pool.deleting:
            continue
        for group in pool.groups:
            there = members[pool.key, group.zone]
            if len(there) > group.target:
                cloud = _shrink(cloud, there, len(there) - group.target, at_s)
            for _ in range(group.target - len(there)):
                cloud = add_node(cloud, pool, group, at_s)
    return _ask_for_instances(cloud, at_s)


def remove_nodes(cloud: Cloud, names: Iterable[NodeName], at_s: float, *, at_once: bool = False) -> Cloud:
    """Removes nodes and their instances. An instance under notice runs until its notice ends, unless `at_once`."""
    for name in names:
        node = cloud.nodes[name]
        if not at_once and node.instance is not None and node.instance.is_noticed:
            cloud = replace(cloud, nodes={**cloud.nodes, name: replace(node, leaving=True)})
        else:
            nodes = {key: each for key, each in cloud.nodes.items() if key != name}
            cloud = replace(cloud, nodes=nodes, region_nodes=spot.forgotten_from(cloud, name, at_s))
    return cloud


def _shrink(cloud: Cloud, there: list[Node], too_many: int, at_s: float) -> Cloud:
    """Removes first nodes without an instance, then nodes under notice, then random ones."""
    cloud, number = chance.count(cloud)
    mixed = chance.shuffled(cloud, "shrink", number, there)
    mixed.sort(key=lambda node: 0 if node.instance is None else 1 if node.instance.is_noticed else 2)
    return remove_nodes(cloud, [node.name for node in mixed[:too_many]], at_s)


def add_node(cloud: Cloud, pool: Pool, group: Group, at_s: float, *, is_surge: bool = False) -> Cloud:
    stem = re.sub("-grp$", "", group.name)
    while True:
        cloud, number = chance.count(cloud)
        name = NodeName(f"{stem}-{chance.suffix(cloud, number)}")
        if name not in cloud.nodes and name not in cloud.region_nodes:
            node = Node(name, pool.key, group.zone, request_at_s=max(at_s, pool.grouped_s), is_surge=is_surge)
            return replace(cloud, nodes={**cloud.nodes, name: node})


def _ask_for_instances(cloud: Cloud, at_s: float) -> Cloud:
    waiting = [node for node in cloud.nodes.values() if node.instance is None and node.request_at_s <= at_s]
    waiting = [node for node in waiting if cloud.clusters[node.pool.of].up_s <= at_s]
    if not waiting:
        return cloud
    held = spot.held(cloud, noticed_too=True)
    used = quotas.usage(cloud)
    nodes = dict(cloud.nodes)
    for node in waiting:
        refused = _over_quota(cloud, node, used) or _stocked_out(cloud, node, held)
        if refused is not None:
            nodes[node.name] = replace(node, request_at_s=at_s + cloud.rules.retry_s, refused=refused)
            cloud = _noting(cloud, node, refused, at_s)
            continue
        pool = cloud.pools[node.pool]
        cloud, instance = _new_instance(cloud, pool, at_s)
        nodes[node.name] = replace(node, instance=instance, refused=None)
        quotas.count(used, cloud, node.pool.project, pool.spec, node.zone)
        if pool.spec.spot:
            held[pool.market(node.zone)] += pool.spec.units
    return replace(cloud, nodes=nodes)


def _noting(cloud: Cloud, node: Node, refused: Failure, at_s: float) -> Cloud:
    pool = cloud.pools[node.pool]
    errors = (*pool.errors, GroupError(at_s, node.name, node.zone, refused))[-MAX_ERRORS:]
    return replace(cloud, pools={**cloud.pools, pool.key: replace(pool, errors=errors)})


def _over_quota(cloud: Cloud, node: Node, used: quotas.Usage) -> Failure | None:
    project = node.pool.project
    for (scope, metric), amount in quotas.needs(cloud, project, cloud.pools[node.pool].spec, node.zone).items():
        limit = quotas.limit_of(cloud, project, scope, metric)
        if used[project, scope, metric] + amount > limit:
            return Failure(Shortage.QUOTA, refusals.over_quota(scope, node.name, metric, limit))
    return None


def _stocked_out(cloud: Cloud, node: Node, held: Counter[Market]) -> Failure | None:
    """On-demand nodes use no capacity of the market, but a stockout refuses them too."""
    pool = cloud.pools[node.pool]
    market = pool.market(node.zone)
    is_taken = pool.spec.spot and held[market] + pool.spec.units > spot.capacity_of(cloud, market)
    if not is_taken and not cloud.offers.get(market, Offer()).stocked_out:
        return None
    return Failure(Shortage.STOCKOUT, refusals.stocked_out(node.pool.project, node.zone, node.name))


def _new_instance(cloud: Cloud, pool: Pool, at_s: float) -> tuple[Cloud, Instance]:
    cloud, number = chance.count(cloud)
    expires_s = spot.lifetime_end_s(cloud, number, at_s) if pool.spec.spot else math.inf
    return cloud, Instance(chance.instance_id(cloud, number), at_s, at_s + cloud.rules.boot_s, expires_s)
