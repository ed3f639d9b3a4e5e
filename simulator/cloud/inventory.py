"""Resources, costs and markets as plain data for the control endpoint."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from simulator.cloud.model import bill, spot, view
from simulator.cloud.model.state import BillLine, Cloud, Node, Pool
from simulator.market.markets import ACCELERATORS, Market

ZONE_LETTERS = "abcdef"
Labels = Mapping[str, str]
Wanted = Callable[[Labels], bool]


def wanting(label: str) -> Wanted:
    """A predicate for the label `key=value` or `key`; an empty label selects everything."""
    key, separator, value = label.partition("=")
    return lambda labels: not key or (labels.get(key) == value if separator else key in labels)


def inventory(cloud: Cloud, label: str = "") -> dict[str, Any]:
    wanted = wanting(label)
    pools = [pool for pool in cloud.pools.values() if wanted(labels_of(pool))]
    keys = {pool.key for pool in pools}
    nodes = [node for node in cloud.nodes.values() if node.pool in keys]
    return {
        "clusters": [
            {
                "project": cluster.key.project,
                "location": cluster.key.location,
                "name": cluster.key.cluster,
                "region": cluster.region,
                "status": view.cluster_status(cloud, cluster).value,
                "endpoint": cluster.endpoint,
            }
            for cluster in cloud.clusters.values()
        ],
        "pools": [_pool(cloud, pool) for pool in pools],
        "nodes": [_node(cloud, node) for node in nodes],
        "operations": [
            {"name": each.name, "type": each.kind.value, "cluster": each.cluster.cluster, "pool": each.pool}
            for each in cloud.operations.values()
            if not each.is_done
        ],
        "regions": [
            {"name": name, "reachable": name in cloud.regions and cloud.regions[name].reachable}
            for name in cloud.rules.regions
        ],
        "by_label": _by_label(pools, nodes),
    }


def bill_of(cloud: Cloud, now_s: float, speed: float, label: str = "") -> dict[str, Any]:
    wanted = wanting(label)
    lines = [bill.settled(line, now_s) for line in cloud.lines.values() if wanted(line.labels)]
    return {
        "micro_usd": _sum(lines, speed),
        "node_seconds": sum(line.node_ms for line in lines) * speed / 1000,
        "lines": [_line(line, speed) for line in lines],
        "by_pool": _grouped(lines, speed, lambda line: [f"{line.pool.cluster}/{line.pool.pool}"]),
        "by_zone": _grouped(lines, speed, lambda line: [line.zone]),
        "by_accelerator": _grouped(lines, speed, lambda line: [line.accelerator]),
        "by_label": _grouped(lines, speed, lambda line: [f"{key}={value}" for key, value in line.labels.items()]),
    }


def market(cloud: Cloud) -> list[dict[str, Any]]:
    """Markets with an offer or with nodes."""
    used = {cloud.pools[node.pool].market(node.zone) for node in cloud.nodes.values()}
    return _reported(cloud, {*cloud.offers, *used})


def _reported(cloud: Cloud, markets: Iterable[Market]) -> list[dict[str, Any]]:
    held = spot.held(cloud, noticed_too=True)
    return [
        {
            "zone": each.zone,
            "accelerator": each.accelerator,
            "capacity": spot.capacity_of(cloud, each),
            "held": held[each],
            "stocked_out": each in cloud.offers and cloud.offers[each].stocked_out,
            "spot_micro_usd_per_hour": spot.price_of(cloud, each),
            "on_demand_micro_usd_per_hour": ACCELERATORS[each.accelerator].on_demand,
        }
        for each in sorted(markets)
    ]


def prices(cloud: Cloud, speed: float) -> list[dict[str, Any]]:
    """Prices of all possible zones for users in real time, where an hour is `speed` hours of the cloud."""
    zones = (f"{region}-{letter}" for region in cloud.rules.regions for letter in ZONE_LETTERS)
    everywhere = {Market(zone, name) for zone in zones for name in ACCELERATORS}
    return [
        {
            "zone": each["zone"],
            "accelerator": each["accelerator"],
            "spot_micro_usd_per_hour": round(each["spot_micro_usd_per_hour"] * speed),
            "on_demand_micro_usd_per_hour": round(each["on_demand_micro_usd_per_hour"] * speed),
        }
        for each in _reported(cloud, everywhere | cloud.offers.keys())
    ]


def labels_of(pool: Pool) -> Labels:
    return {**pool.spec.labels, **pool.spec.resource_labels}


def _pool(cloud: Cloud, pool: Pool) -> dict[str, Any]:
    spec = pool.spec
    return {
        "cluster": pool.key.cluster,
        "location": pool.key.location,
        "name": pool.key.pool,
        "zones": list(spec.zones),
        "machine_type": spec.machine.name,
        "accelerator": spec.accelerator,
        "accelerators": spec.accelerators,
        "spot": spec.spot,
        "target": sum(group.target for group in pool.groups),
        "status": view.pool_status(cloud, pool).value,
        "phases": dict(Counter(view.phase(cloud, node).value for node in view.nodes_of(cloud, pool.key))),
        "groups": [{"name": group.name, "zone": group.zone, "target": group.target} for group in pool.groups],
        "labels": dict(labels_of(pool)),
    }


def _node(cloud: Cloud, node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "cluster": node.pool.cluster,
        "pool": node.pool.pool,
        "zone": node.zone,
        "phase": view.phase(cloud, node).value,
        "instance_id": node.instance.id if node.instance else "",
        "refused": node.refused.message if node.refused else "",
        "labels": dict(labels_of(cloud.pools[node.pool])),
    }


def _by_label(pools: Iterable[Pool], nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    carried = {pool.key: [f"{key}={value}" for key, value in labels_of(pool).items()] for pool in pools}
    for what, keys in (("pools", carried.keys()), ("nodes", [node.pool for node in nodes])):
        for key in keys:
            for label in carried[key]:
                counts = found.setdefault(label, {"pools": 0, "nodes": 0})
                counts[what] += 1
    return found


def _line(line: BillLine, speed: float) -> dict[str, Any]:
    return {
        "project": line.pool.project,
        "cluster": line.pool.cluster,
        "pool": line.pool.pool,
        "zone": line.zone,
        "accelerator": line.accelerator,
        "spot": line.spot,
        "labels": dict(line.labels),
        "nodes": line.nodes,
        "micro_usd_per_hour": line.rate,
        "node_seconds": line.node_ms * speed / 1000,
        "micro_usd": bill.cost_of(line, speed),
    }


def _grouped(lines: list[BillLine], speed: float, keys: Callable[[BillLine], Iterable[str]]) -> dict[str, int]:
    groups: dict[str, list[BillLine]] = {}
    for line in lines:
        for key in keys(line):
            groups.setdefault(key, []).append(line)
    return {key: _sum(group, speed) for key, group in groups.items()}


def _sum(lines: list[BillLine], speed: float) -> int:
    """Total cost, divided once, so that rounding errors do not add up."""
    return round(sum(line.cost for line in lines) * speed / bill.MS_PER_HOUR)
