"""Learns from listings of the cloud's pools, and ignores what is too old in them."""

from dataclasses import replace

from controlplane.allocator.availability import availability_of, close_for, is_closed
from controlplane.allocator.events import ListingFailed, PoolsListed, ReadinessSeen
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.state import Allocator, Listing, Pool
from controlplane.allocator.timing import settles
from controlplane.clouds.interface import PoolInfo, PoolStatus, RecentShortage
from controlplane.clouds.outcomes import Refused
from messages.labels import JOB_LABEL
from runtime.backoff import pause_after


def learn_listing(allocator: Allocator, event: PoolsListed) -> Allocator:
    number, asked_s = allocator.listing.number, allocator.listing.asked_s
    if asked_s is None or event.listing != number:
        return allocator
    listing = Listing(
        number, learned=number, learned_s=asked_s, unlisted_s=_still_unlisted_s(allocator.listing, asked_s)
    )
    clusters = {cluster.name: cluster.ready for cluster in event.clusters}
    allocator = replace(allocator, listing=listing, clusters=clusters)
    infos = {
        info.ref: info
        for cluster in event.clusters
        for info in cluster.pools
        if info.labels.get(JOB_LABEL) == allocator.job
    }
    for info in infos.values():
        allocator = _learn_pool(allocator, info, event.at_s)
    pools = {
        ref: pool if ref in infos or _is_newer(pool, listing) or _is_doubted(pool, listing) else _not_there(pool)
        for ref, pool in allocator.pools.items()
    }
    deleted = {ref: newest for ref, newest in allocator.deleted.items() if newest >= number}
    return replace(allocator, pools=pools, deleted=deleted)


def fail_listing(allocator: Allocator, event: ListingFailed) -> Allocator:
    listing, settings = allocator.listing, allocator.settings
    if listing.asked_s is None or event.listing != listing.number:
        return allocator
    failed = replace(
        listing,
        asked_s=None,
        failures=listing.failures + 1,
        retry_s=event.at_s + pause_after(listing.failures + 1, settings.retry_s, settings.retry_max_s),
        error=event.outcome.detail,
        hint=event.outcome.hint if isinstance(event.outcome, Refused) else "",
    )
    return replace(allocator, listing=failed)


def learn_readiness(allocator: Allocator, event: ReadinessSeen) -> Allocator:
    """Store why a cluster is not ready. Only a later listing makes it ready, so a report of readiness requests one."""
    allocator = replace(allocator, unready={**allocator.unready, event.cluster: event.waits_for})
    if event.waits_for or allocator.clusters.get(event.cluster, False):
        return allocator
    return replace(allocator, listing=replace(allocator.listing, unlisted_s=event.at_s))


def _still_unlisted_s(listing: Listing, asked_s: float) -> float | None:
    return listing.unlisted_s if listing.unlisted_s is not None and asked_s < listing.unlisted_s else None


def _learn_pool(allocator: Allocator, info: PoolInfo, now_s: float) -> Allocator:
    listing, pool = allocator.listing, allocator.pools.get(info.ref)
    if pool is None:
        if allocator.deleted.get(info.ref, -1) >= listing.learned:
            return allocator
        pool = Pool(info.ref, _offer_of(allocator, info), adopted=True)
    elif _is_newer(pool, listing):
        return allocator
    making = pool.doubt is not None and info.status is PoolStatus.PROVISIONING
    pool = replace(
        pool,
        exists=True,
        target=info.size,
        doubt=pool.doubt if making or _is_doubted(pool, listing) else None,
        stopping=info.status is PoolStatus.STOPPING,
        updating=info.status is PoolStatus.UPDATING and not _is_resize(allocator, pool, info, now_s),
        resizing=pool.resizing and info.status is PoolStatus.UPDATING,
        broken=info.status is PoolStatus.ERROR,
        vacant=dict(sorted(pool.vacant.items())[: max(0, info.size - len(pool.nodes))]),
    )
    allocator = replace(allocator, pools={**allocator.pools, pool.ref: pool})
    is_short = pool.sighted_s is not None and pool.target > len(pool.nodes)
    return _note_shortage(allocator, pool, info.shortage, now_s) if is_short and info.shortage else allocator


def _is_resize(allocator: Allocator, pool: Pool, info: PoolInfo, now_s: float) -> bool:
    """Report whether the update is our own resize that the cloud still works on, and not an upgrade."""
    was_refused = info.shortage is not None or is_closed(allocator, pool.offer.kind, now_s)
    return pool.resizing or pool.hanging_s is not None or (was_refused and info.size > len(pool.nodes))


def _note_shortage(allocator: Allocator, pool: Pool, shortage: RecentShortage, now_s: float) -> Allocator:
    """Close the zone after a refusal that is recent and newer than the last known one."""
    stock, at_s = pool.offer.kind, now_s - shortage.age_s
    known_s = availability_of(allocator, stock).short_s
    is_old = shortage.age_s > allocator.settings.recent_s or (known_s is not None and at_s <= known_s)
    if is_old or is_closed(allocator, stock, now_s):
        return allocator
    allocator = replace(allocator, pools={**allocator.pools, pool.ref: replace(pool, granted=False)})
    return close_for(allocator, stock, shortage.reason, now_s)


def _offer_of(allocator: Allocator, info: PoolInfo) -> Offer:
    """The offer of a listed pool. A pool without an offer in the fleet is kept while it is used, and never raised."""
    for offer in allocator.offers:
        if pool_ref(allocator.job, offer) == info.ref:
            return offer
    return Offer(
        cluster=info.ref.cluster,
        zone=info.kind.zone,
        machine_type=info.kind.machine_type,
        max_nodes=info.size,
        accelerator=info.kind.accelerator or None,
        accelerators_per_node=info.kind.accelerators,
        spot=info.kind.spot,
        pool=info.ref.pool,
    )


def _not_there(pool: Pool) -> Pool:
    """A pool that does not exist; only its failures are remembered."""
    return Pool(pool.ref, pool.offer, failures=pool.failures, retry_s=pool.retry_s, last_error=pool.last_error)


def _is_newer(pool: Pool, listing: Listing) -> bool:
    """Report whether an operation on the pool began or ended after the listing was requested."""
    return pool.operation is not None or pool.touched >= listing.learned


def _is_doubted(pool: Pool, listing: Listing) -> bool:
    return pool.doubt is not None and not settles(listing, pool.doubt)
