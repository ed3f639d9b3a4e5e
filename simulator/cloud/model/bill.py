"""What the nodes cost: node-seconds at the current price, from an instance's start to its end.

Each pool and zone has a line with the number of running nodes and the price of one. When either changes, the line adds
the time that passed at the old number and price. All totals are integers, so no rounding error accumulates.
"""

from collections import Counter
from dataclasses import replace

from simulator.cloud.model.spot import rate_of
from simulator.cloud.model.state import BillLine, Cloud
from simulator.market.markets import MicroUsd

MS_PER_HOUR = 3_600_000


def meter(cloud: Cloud, at_s: float) -> Cloud:
    """Updates the lines to the nodes that run now."""
    running: Counter[tuple[str, str]] = Counter()
    lines = dict(cloud.lines)
    for node in cloud.nodes.values():
        if node.instance is None:
            continue
        pool = cloud.pools[node.pool]
        key = (pool.uid, node.zone)
        running[key] += 1
        if key not in lines:
            spec = pool.spec
            labels = {**spec.labels, **spec.resource_labels}
            lines[key] = BillLine(pool.key, pool.uid, node.zone, spec.bought_as, spec.spot, labels, _ms(at_s))
    for key, line in lines.items():
        nodes = running[key]
        still = cloud.pools.get(line.pool)
        rate = rate_of(cloud, still, line.zone) if nodes and still is not None else line.rate
        if (nodes, rate) != (line.nodes, line.rate):
            lines[key] = replace(settled(line, at_s), nodes=nodes, rate=rate)
    return replace(cloud, lines=lines)


def settled(line: BillLine, at_s: float) -> BillLine:
    """The line with all time until now added."""
    passed_ms = max(0, _ms(at_s) - line.since_ms) * line.nodes
    return replace(line, since_ms=_ms(at_s), node_ms=line.node_ms + passed_ms, cost=line.cost + passed_ms * line.rate)


def cost_of(line: BillLine, speed: float) -> MicroUsd:
    return MicroUsd(round(line.cost * speed / MS_PER_HOUR))


def _ms(at_s: float) -> int:
    return round(at_s * 1000)
