"""Clusters in which the job's workers cannot start: no nodes are requested there, and unusable nodes are removed.

Nodes are kept for a while first: a permission that is granted meanwhile lets their workers start. Later the cluster is
tried again with few nodes, each time after a longer pause. Running workers are not changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from controlplane.allocator.events import ControllerFailed, StartsSeen
from controlplane.allocator.learn_nodes import lose
from controlplane.allocator.offers import Offer
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import Allocator, Block, Node, Pool
from messages.ids import ClusterName
from runtime.backoff import pause_after


def learn_starts(allocator: Allocator, event: StartsSeen) -> Allocator:
    cluster, nodes = event.cluster, _nodes(allocator, event.cluster)
    known, before = allocator.blocks.get(cluster), allocator.failing.get(cluster, {})
    failing = {name: event.at_s - for_s for name, for_s in event.failing if name in nodes}
    allocator = replace(allocator, failing={**allocator.failing, cluster: failing})
    started = [node for name, node in nodes.items() if name in event.started]
    if known is not None and any(_is_proof(known, node) for node in started):
        known = None
    if failing and not _is_of_single_nodes([nodes[name] for name in failing], started):
        is_new = known is None or not before
        failures = (known.failures if known is not None else 0) + is_new
        since_s = event.at_s if known is None or is_new else known.since_s
        settings = allocator.settings
        until_s = event.at_s + pause_after(failures, settings.start_retry_s, settings.start_retry_max_s)
        nodes_tried = frozenset(failing) | (known.nodes if known is not None and not is_new else frozenset())
        known = Block(since_s, until_s, failures, event.detail, event.hint, nodes_tried)
    blocks = {name: block for name, block in allocator.blocks.items() if name != cluster}
    return replace(allocator, blocks=blocks if known is None else {**blocks, cluster: known})


def block_silent(allocator: Allocator, event: ControllerFailed) -> Allocator:
    known = allocator.blocks.get(event.cluster)
    since_s = known.since_s if known is not None and known.of_controller else event.at_s
    until_s = event.at_s + allocator.settings.controller_block_s
    block = Block(since_s, until_s, 1, event.detail, event.hint, of_controller=True)
    return replace(allocator, blocks={**allocator.blocks, event.cluster: block})


def unblock_heard(allocator: Allocator, cluster: ClusterName) -> Allocator:
    """Remove the cluster's block if its controller caused it: the controller runs."""
    block = allocator.blocks.get(cluster)
    if block is None or not block.of_controller:
        return allocator
    return replace(allocator, blocks={name: each for name, each in allocator.blocks.items() if name != cluster})


def give_up_unstartable(pool: Pool, failing: Mapping[str, float], settings: AllocatorSettings, now_s: float) -> Pool:
    """Mark nodes as lost on which the job's worker could not start for too long."""
    for name, since_s in failing.items():
        node = pool.nodes.get(name)
        if node is not None and node.lost_s is None and now_s - since_s >= settings.start_give_back_s:
            why = f"no worker could start on it for {now_s - since_s:.0f} s"
            pool = lose(pool, replace(node, useless=why), now_s)
    return pool


def is_blocked(allocator: Allocator, cluster: ClusterName, now_s: float) -> bool:
    block = allocator.blocks.get(cluster)
    return block is not None and now_s < block.until_s


def room_of(allocator: Allocator, offer: Offer) -> int:
    """The most nodes of an offer: in a blocked cluster only the fewest that can train."""
    if offer.cluster not in allocator.blocks:
        return offer.max_nodes
    least = allocator.demand.criteria.min_workers if allocator.demand is not None else 1
    return min(offer.max_nodes, max(1, least))


def start_times(allocator: Allocator) -> Iterator[float]:
    """Times at which a block or a grace period ends."""
    yield from (block.until_s for block in allocator.blocks.values())
    for failing in allocator.failing.values():
        yield from (since_s + allocator.settings.start_give_back_s for since_s in failing.values())


def _is_proof(block: Block, started: Node) -> bool:
    """Report whether a worker started on a node of the block, or on a node that came later."""
    return started.name in block.nodes or started.first_seen_s >= block.since_s


def _is_of_single_nodes(failing: list[Node], started: list[Node]) -> bool:
    """Report whether workers start on nodes that are not older: then the cluster is not the cause."""
    oldest_s = min(node.first_seen_s for node in failing)
    return any(node.first_seen_s >= oldest_s for node in started)


def _nodes(allocator: Allocator, cluster: ClusterName) -> dict[str, Node]:
    pools = (pool for pool in allocator.pools.values() if pool.ref.cluster == cluster)
    return {name: node for pool in pools for name, node in pool.nodes.items()}
