"""What a listing of the cloud's pools teaches, and what it is too old to teach."""

from dataclasses import replace

from controlplane.allocator.availability import availability_of, close_for, is_closed
from controlplane.allocator.backoff import pause_s
from controlplane.allocator.events import ListingFailed, PoolsListed, ReadinessSeen
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.state import Allocator, Listing, Pool
from controlplane.allocator.timing import settles
from controlplane.clouds.interface import PoolInfo, PoolStatus, RecentShortage
from controlplane.clouds.outcomes import Refused
from messages.labels import JOB_LABEL


def learn_listing(allocator: Allocator, event: PoolsListed) -> Allocator:
    number, asked_s = allocator.listing.number, allocator.listing.asked_s
    if asked_s is None or event.listing != number:
        return allocator
    listing = Listing(number, learned=number, learned_s=asked_s, news_s=_still_news_s(allocator.listing, asked_s))
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
        retry_s=event.at_s + pause_s(settings.retry_s, settings.retry_max_s, listing.failures),
        error=event.outcome.detail,
        hint=event.outcome.hint if isinstance(event.outcome, Refused) else "",
    )
    return replace(allocator, listing=failed)


def learn_readiness(allocator: Allocator, event: ReadinessSeen) -> Allocator:
    """Hearsay: only a listing that is asked for from now on makes a cluster ready."""
    allocator = replace(allocator, unready={**allocator.unready, event.cluster: event.waits_for})
    if event.waits_for or allocator.clusters.get(event.cluster, False):
        return allocator
    return replace(allocator, listing=replace(allocator.listing, news_s=event.at_s))


def _still_news_s(listing: Listing, asked_s: float) -> float | None:
    return listing.news_s if listing.news_s is not None and asked_s < listing.news_s else None


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
    """A resize of ours that is no longer waited for looks like an upgrade, but its machines were refused."""
    was_refused = info.shortage is not None or is_closed(allocator, pool.offer.kind, now_s)
    return pool.resizing or pool.hanging_s is not None or (was_refused and info.size > len(pool.nodes))


def _note_shortage(allocator: Allocator, pool: Pool, shortage: RecentShortage, now_s: float) -> Allocator:
    """Only a refusal that is recent, and newer than the last one that is known, closes the zone."""
    stock, at_s = pool.offer.kind, now_s - shortage.age_s
    known_s = availability_of(allocator, stock).short_s
    is_old = shortage.age_s > allocator.settings.recent_s or (known_s is not None and at_s <= known_s)
    if is_old or is_closed(allocator, stock, now_s):
        return allocator
    allocator = replace(allocator, pools={**allocator.pools, pool.ref: replace(pool, granted=False)})
    return close_for(allocator, stock, shortage.reason, now_s)


def _offer_of(allocator: Allocator, info: PoolInfo) -> Offer:
    """What it was made from; a pool that no offer would make is kept while it is of use, and never raised."""
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
    """Only how often it could not be had is remembered."""
    return Pool(pool.ref, pool.offer, failures=pool.failures, retry_s=pool.retry_s, last_error=pool.last_error)


def _is_newer(pool: Pool, listing: Listing) -> bool:
    """Something was asked of it, or answered, after the listing was asked for."""
    return pool.operation is not None or pool.touched >= listing.learned


def _is_doubted(pool: Pool, listing: Listing) -> bool:
    return pool.doubt is not None and not settles(listing, pool.doubt)
