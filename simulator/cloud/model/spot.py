"""Spot capacity, preemptions and notices.

When a zone's capacity falls below what spot nodes use, the cloud preempts as many nodes as are too many, chosen by the
seed. A preempted instance uses its capacity until its notice ends; then its node waits for another instance.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from simulator.cloud.model import chance
from simulator.cloud.model.names import NodeName
from simulator.cloud.model.state import DEFAULT_GRACE_S, Cloud, Node, Notice, Offer, Pool, RegionNode
from simulator.market.markets import ACCELERATORS, CPU, Market, MicroUsd

UNLIMITED = 1_000_000


def capacity_of(cloud: Cloud, market: Market) -> int:
    offer = cloud.offers.get(market, Offer())
    if offer.capacity_by_hand is not None:
        return offer.capacity_by_hand
    if offer.capacity is not None:
        return offer.capacity
    return UNLIMITED if market.accelerator == CPU else cloud.rules.default_capacity


def price_of(cloud: Cloud, market: Market) -> MicroUsd:
    """Spot price of one accelerator (or vCPU) for an hour."""
    offer = cloud.offers.get(market, Offer())
    if offer.price_by_hand is not None:
        return offer.price_by_hand
    return offer.price if offer.price is not None else ACCELERATORS[market.accelerator].spot


def rate_of(cloud: Cloud, pool: Pool, zone: str) -> MicroUsd:
    """Price of one node of the pool for an hour."""
    market = pool.market(zone)
    price = price_of(cloud, market) if pool.spec.spot else ACCELERATORS[market.accelerator].on_demand
    return MicroUsd(price * pool.spec.units)


def held(cloud: Cloud, *, noticed_too: bool) -> Counter[Market]:
    """Capacity that spot nodes use in each market."""
    found: Counter[Market] = Counter()
    for node in cloud.nodes.values():
        pool = cloud.pools[node.pool]
        if pool.spec.spot and node.instance is not None and (noticed_too or not node.instance.is_noticed):
            found[pool.market(node.zone)] += pool.spec.units
    return found


def take_back(cloud: Cloud, at_s: float) -> Cloud:
    """Ends instances whose notice is over; gives notice to those that reached their lifetime or exceed the capacity."""
    for node in list(cloud.nodes.values()):
        if node.instance is not None and node.instance.ends_s <= at_s:
            cloud = end(cloud, node, at_s)
        elif node.instance is not None and node.instance.expires_s <= at_s and not node.instance.is_noticed:
            cloud = give_notice(cloud, node, at_s, _notice_s(cloud, node, usual_notice_s(cloud, node)))
    for market, amount in held(cloud, noticed_too=False).items():
        cloud = _shed(cloud, market, amount - capacity_of(cloud, market), at_s)
    return cloud


def give_notice(cloud: Cloud, node: Node, at_s: float, notice_s: float) -> Cloud:
    """An instance that no region knows yet ends without notice; one under notice gets no second, later notice."""
    instance = node.instance
    if instance is None:
        return cloud
    known_node = cloud.region_nodes.get(node.name)
    is_known = known_node is not None and (known_node.reported.id == instance.id or known_node.reported.request > 0)
    if known_node is None or not is_known:
        return end(cloud, node, at_s)
    if instance.is_noticed and at_s + notice_s >= instance.ends_s:
        return cloud
    reported = replace(known_node, notice=Notice(instance.id, at_s, notice_s), notice_reported=False)
    cloud = replace(cloud, region_nodes={**cloud.region_nodes, node.name: reported})
    if notice_s <= 0:
        return end(cloud, node, at_s)
    noticed = replace(node, instance=replace(instance, ends_s=at_s + notice_s))
    return replace(cloud, nodes={**cloud.nodes, node.name: noticed})


def end(cloud: Cloud, node: Node, at_s: float) -> Cloud:
    """Ends the node's instance. The node waits for another, unless it is leaving its group."""
    nodes = dict(cloud.nodes)
    forget_at_s = at_s + cloud.rules.forget_s
    if node.leaving:
        del nodes[node.name]
        forget_at_s = at_s
    else:
        nodes[node.name] = replace(
            node,
            instance=None,
            request_at_s=at_s + cloud.rules.recreate_s,
            refused=None,
            drain_began_s=None,
            unready_since_s=None,
        )
    return replace(cloud, nodes=nodes, region_nodes=forgotten_from(cloud, node.name, forget_at_s))


def forgotten_from(cloud: Cloud, node: NodeName, forget_at_s: float) -> Mapping[NodeName, RegionNode]:
    known_node = cloud.region_nodes.get(node)
    if known_node is None:
        return cloud.region_nodes
    return {**cloud.region_nodes, node: replace(known_node, forget_at_s=forget_at_s)}


def lifetime_end_s(cloud: Cloud, number: int, at_s: float) -> float:
    lifetimes = cloud.rules.lifetimes
    return math.inf if lifetimes is None else at_s + lifetimes.draw_s(f"{cloud.rules.seed}/lifetime/{number}")


def usual_notice_s(cloud: Cloud, node: Node) -> float:
    """Seconds of notice, in proportion to the pool's shutdown grace."""
    return cloud.rules.notice_s * cloud.pools[node.pool].spec.shutdown_grace_s / DEFAULT_GRACE_S


def _shed(cloud: Cloud, market: Market, too_much: int, at_s: float) -> Cloud:
    if too_much <= 0:
        return cloud
    cloud, number = chance.count(cloud)
    offer = cloud.offers.get(market, Offer())
    for node in chance.shuffled(cloud, "victims", number, _holders(cloud, market)):
        if too_much <= 0:
            break
        too_much -= cloud.pools[node.pool].spec.units
        usual_s = usual_notice_s(cloud, node) if offer.notice_s is None else offer.notice_s
        cloud = give_notice(cloud, node, at_s, _notice_s(cloud, node, usual_s))
    return cloud


def _holders(cloud: Cloud, market: Market) -> list[Node]:
    return [
        node
        for node in cloud.nodes.values()
        if node.instance is not None
        and not node.instance.is_noticed
        and cloud.pools[node.pool].spec.spot
        and cloud.pools[node.pool].market(node.zone) == market
    ]


def _notice_s(cloud: Cloud, node: Node, usual_s: float) -> float:
    """Seconds of notice; some instances are preempted without notice."""
    if cloud.rules.silent_share <= 0 or node.instance is None:
        return usual_s
    is_silent = random.Random(f"{cloud.rules.seed}/word/{node.instance.id}").random() < cloud.rules.silent_share
    return 0.0 if is_silent else usual_s
