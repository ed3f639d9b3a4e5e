"""Orders of the control endpoint: preemptions, maintenance, stockouts, prices, quotas."""

from dataclasses import replace
from typing import assert_never

from simulator.cloud.model import refusals
from simulator.cloud.model.requests import (
    Done,
    MaintainHost,
    Outcome,
    PreemptNode,
    SetCapacity,
    SetNodeReady,
    SetPrice,
    SetQuota,
    SetRoles,
    StockOut,
)
from simulator.cloud.model.spot import give_notice, usual_notice_s
from simulator.cloud.model.state import Cloud, Offer
from simulator.cloud.model.view import is_running
from simulator.market.markets import Market

Order = PreemptNode | MaintainHost | SetNodeReady | StockOut | SetCapacity | SetPrice | SetQuota | SetRoles


def obey(cloud: Cloud, order: Order, at_s: float) -> tuple[Cloud, Outcome]:
    match order:
        case PreemptNode():
            return _preempt(cloud, order, at_s)
        case MaintainHost():
            return _maintain(cloud, order, at_s)
        case SetNodeReady():
            return _set_ready(cloud, order, at_s)
        case StockOut():
            return _offering(cloud, order.market, replace(_offer(cloud, order.market), stocked_out=order.on)), Done()
        case SetCapacity():
            offer = replace(_offer(cloud, order.market), capacity_by_hand=order.capacity)
            return _offering(cloud, order.market, offer), Done()
        case SetPrice():
            offer = replace(_offer(cloud, order.market), price_by_hand=order.price)
            return _offering(cloud, order.market, offer), Done()
        case SetQuota():
            return _set_quota(cloud, order), Done()
        case SetRoles(account, granted):
            roleless = cloud.roleless - {account} if granted else cloud.roleless | {account}
            return replace(cloud, roleless=roleless), Done()
        case _:
            assert_never(order)


def _preempt(cloud: Cloud, order: PreemptNode, at_s: float) -> tuple[Cloud, Outcome]:
    node = cloud.nodes.get(order.node)
    if node is None:
        return cloud, refusals.no_resource(f"instances/{order.node}")
    if node.instance is None:
        return cloud, refusals.invalid(f"The node {order.node} has no instance now.")
    notice_s = usual_notice_s(cloud, node) if order.notice_s is None else order.notice_s
    return give_notice(cloud, node, at_s, notice_s), Done()


def _maintain(cloud: Cloud, order: MaintainHost, at_s: float) -> tuple[Cloud, Outcome]:
    """Preempts a spot node. Stops another node with accelerators, because it cannot migrate."""
    node = cloud.nodes.get(order.node)
    if node is None:
        return cloud, refusals.no_resource(f"instances/{order.node}")
    spec = cloud.pools[node.pool].spec
    if spec.spot:
        return _preempt(cloud, PreemptNode(order.node, order.notice_s), at_s)
    if not spec.accelerator or node.instance is None:
        return cloud, refusals.invalid(f"The node {order.node} has no accelerator, or no instance now.")
    notice_s = cloud.rules.maintenance_s if order.notice_s is None else order.notice_s
    stopping = replace(node, instance=replace(node.instance, stops_s=at_s + notice_s))
    return replace(cloud, nodes={**cloud.nodes, node.name: stopping}), Done()


def _set_ready(cloud: Cloud, order: SetNodeReady, at_s: float) -> tuple[Cloud, Outcome]:
    node = cloud.nodes.get(order.node)
    if node is None:
        return cloud, refusals.no_resource(f"instances/{order.node}")
    if not is_running(cloud, node):
        return cloud, refusals.invalid(f"The node {order.node} does not run now.")
    since_s = None if order.ready else at_s if node.unready_since_s is None else node.unready_since_s
    return replace(cloud, nodes={**cloud.nodes, node.name: replace(node, unready_since_s=since_s)}), Done()


def _set_quota(cloud: Cloud, order: SetQuota) -> Cloud:
    key = (order.project, order.scope, order.metric)
    quotas = {each: limit for each, limit in cloud.quotas.items() if each != key}
    return replace(cloud, quotas=quotas if order.limit is None else {**quotas, key: order.limit})


def _offer(cloud: Cloud, market: Market) -> Offer:
    return cloud.offers.get(market, Offer())


def _offering(cloud: Cloud, market: Market, offer: Offer) -> Cloud:
    return replace(cloud, offers={**cloud.offers, market: offer})
