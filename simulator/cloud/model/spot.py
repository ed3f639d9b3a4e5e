"""The market's side of the nodes: what is free, what is taken back, what a notice means.

Spot nodes are the market's: when a zone's capacity falls below what is held, as many as are too many are doomed, chosen
by the seed. A doomed instance holds its capacity until its notice is over, then it ends; its node waits for another.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from simulator.cloud.model import chance
from simulator.cloud.model.names import NodeName
from simulator.cloud.model.state import DEFAULT_GRACE_S, Cloud, Doom, Node, Offer, Pool, Presence
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
    """Spot, of one accelerator (or vCPU) for an hour."""
    offer = cloud.offers.get(market, Offer())
    if offer.price_by_hand is not None:
        return offer.price_by_hand
    return offer.price if offer.price is not None else ACCELERATORS[market.accelerator].spot


def rate_of(cloud: Cloud, pool: Pool, zone: str) -> MicroUsd:
    """Of one node of the pool for an hour."""
    market = pool.market(zone)
    price = price_of(cloud, market) if pool.spec.spot else ACCELERATORS[market.accelerator].on_demand
    return MicroUsd(price * pool.spec.units)


def held(cloud: Cloud, *, doomed_too: bool) -> Counter[Market]:
    """What spot nodes hold of each market."""
    found: Counter[Market] = Counter()
    for node in cloud.nodes.values():
        pool = cloud.pools[node.pool]
        if pool.spec.spot and node.instance is not None and (doomed_too or not node.instance.is_doomed):
            found[pool.market(node.zone)] += pool.spec.units
    return found


def take_back(cloud: Cloud, at_s: float) -> Cloud:
    """Ends what is over, dooms what has lived long enough and what is too much."""
    for node in list(cloud.nodes.values()):
        if node.instance is not None and node.instance.ends_s <= at_s:
            cloud = end(cloud, node, at_s)
        elif node.instance is not None and node.instance.expires_s <= at_s and not node.instance.is_doomed:
            cloud = doom(cloud, node, at_s, _notice_s(cloud, node, usual_notice_s(cloud, node)))
    for market, amount in held(cloud, doomed_too=False).items():
        cloud = _shed(cloud, market, amount - capacity_of(cloud, market), at_s)
    return cloud


def doom(cloud: Cloud, node: Node, at_s: float, notice_s: float) -> Cloud:
    """One that no region has heard of yet ends without a word; one that is doomed already gets no second notice."""
    instance = node.instance
    if instance is None:
        return cloud
    presence = cloud.presences.get(node.name)
    is_known = presence is not None and (presence.told.id == instance.id or presence.told.request > 0)
    if presence is None or not is_known:
        return end(cloud, node, at_s)
    if instance.is_doomed and at_s + notice_s >= instance.ends_s:
        return cloud
    told = replace(presence, doom=Doom(instance.id, at_s, notice_s), doom_told=False)
    cloud = replace(cloud, presences={**cloud.presences, node.name: told})
    if notice_s <= 0:
        return end(cloud, node, at_s)
    doomed = replace(node, instance=replace(instance, ends_s=at_s + notice_s))
    return replace(cloud, nodes={**cloud.nodes, node.name: doomed})


def end(cloud: Cloud, node: Node, at_s: float) -> Cloud:
    """The instance is over. Its node waits for another, unless its group no longer wants it."""
    nodes = dict(cloud.nodes)
    forget_s = at_s + cloud.rules.forget_s
    if node.leaving:
        del nodes[node.name]
        forget_s = at_s
    else:
        nodes[node.name] = replace(
            node, instance=None, ask_s=at_s + cloud.rules.recreate_s, refused=None, drain_s=None, unready_s=None
        )
    return replace(cloud, nodes=nodes, presences=forgotten_from(cloud, node.name, forget_s))


def forgotten_from(cloud: Cloud, node: NodeName, forget_s: float) -> Mapping[NodeName, Presence]:
    presence = cloud.presences.get(node)
    if presence is None:
        return cloud.presences
    return {**cloud.presences, node: replace(presence, forget_s=forget_s)}


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
        cloud = doom(cloud, node, at_s, _notice_s(cloud, node, usual_s))
    return cloud


def _holders(cloud: Cloud, market: Market) -> list[Node]:
    return [
        node
        for node in cloud.nodes.values()
        if node.instance is not None
        and not node.instance.is_doomed
        and cloud.pools[node.pool].spec.spot
        and cloud.pools[node.pool].market(node.zone) == market
    ]


def _notice_s(cloud: Cloud, node: Node, usual_s: float) -> float:
    """Some are taken without a word."""
    if cloud.rules.silent_share <= 0 or node.instance is None:
        return usual_s
    is_silent = random.Random(f"{cloud.rules.seed}/word/{node.instance.id}").random() < cloud.rules.silent_share
    return 0.0 if is_silent else usual_s
