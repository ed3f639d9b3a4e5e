"""Criteria that no offer can meet: all problems, with the given value and the nearest one that would work.

A check that depends on a wrong value uses the nearest one that would work instead.
"""

import difflib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import ROUND_CEILING, Decimal

from msgspec import structs

from controlplane.catalog.accelerators import ACCELERATORS, matching
from controlplane.catalog.money import MICRO_PER_USD, usd_text
from controlplane.catalog.offers import Offer
from controlplane.planning.criteria import Criteria
from controlplane.planning.explanations import no_room, places
from controlplane.planning.market import CurrentCapacity, Market
from controlplane.planning.plan import Plan, plan
from controlplane.planning.quotas import limiting, too_small_for
from controlplane.planning.scoring import limit_of
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile
from messages.criteria import Capacity, Objective
from messages.jobs import JobSpec

Problem = tuple[str, str]

USEFUL_S = 600
"""Seconds that a budget must last: a shorter run trains nothing."""
SHOWN = 4
"""The most names that a message suggests."""
_QUIET = Tuning(alternatives=0)


def refusals(
    spec: JobSpec, criteria: Criteria, offers: Sequence[Offer], market: Market, profile: Profile
) -> list[Problem]:
    """All problems of a job's criteria; numbers and prices are checked only for offered and known machines."""
    capacity = spec.capacity or Capacity()
    unknown = list(_unknown(spec, capacity))
    if not market.options:
        return [*unknown, *_not_offered(criteria, offers)]
    names_none = capacity.accelerators and not criteria.accelerators
    if names_none or not profile.compute:
        return unknown
    return [*unknown, *(list(_unprofiled(market, profile)) or _too_much(criteria, market, profile))]


def unplannable(capacity: Capacity) -> list[Problem]:
    """Criteria that only a plan can enforce, for a fleet without known prices."""
    given: dict[str, object] = {
        "deadline": capacity.deadline,
        "max_usd_per_hour": capacity.max_usd_per_hour,
        "accelerators": capacity.accelerators,
        "regions": capacity.regions,
        "zones": capacity.zones,
        "machine_types": capacity.machine_types,
        "on_demand": capacity.on_demand,
    }
    text = "cannot be enforced: no machine of this fleet has a known price, so jobs are not planned; leave it out"
    return [(f"capacity.{name}", text) for name, value in given.items() if value]


def unfit(spec: JobSpec, gpus: Collection[int]) -> list[Problem]:
    """Ranks that fit on no machine of an unplanned job, if each rank needs a GPU; `gpus` are those of the machines.

    Unlike a planned worker, an unplanned one may leave some of its machine's GPUs idle.
    """
    ranks = spec.workers.ranks
    if not spec.pod.gpu or not any(gpus) or ranks <= max(gpus):
        return []
    would = " or ".join(str(each) for each in sorted({*gpus} - {0}))
    return [("workers.ranks", leaves_none(str(ranks), would))]


def _unknown(spec: JobSpec, capacity: Capacity) -> Iterator[Problem]:
    known = ", ".join(each.name for each in ACCELERATORS)
    for place, name in enumerate(capacity.accelerators):
        if not matching(name):
            yield f"capacity.accelerators[{place}]", f"is {name}, which is not in the catalog; use {known}"
    for name in spec.profile.compute if spec.profile is not None else ():
        if not matching(name):
            yield f"profile.compute.{name}", f"is not an accelerator of the catalog; use {known}"


def _not_offered(criteria: Criteria, offers: Sequence[Offer]) -> Iterator[Problem]:
    """Criteria that exclude all offers by themselves; of the others, in order, the first that leaves no offer."""
    alone = {path for path, _, _, allows in _filters(criteria) if not any(map(allows, offers))}
    left = list(offers)
    for path, given, attribute, allows in _filters(criteria):
        remaining = [each for each in left if allows(each)]
        if not remaining:
            yield path, leaves_none(given, _nearest(given, left, attribute))
            if path not in alone:
                return
        left = remaining or left
    if not alone:
        kind = "spot" if criteria.on_demand < 1 else "on-demand"
        yield "capacity.on_demand", f"is {criteria.on_demand:g}, but the allowed machines are not offered as {kind}"


def leaves_none(given: str, nearest: str) -> str:
    return f"is {given}, which leaves no offer; {nearest} would"


def _filters(criteria: Criteria) -> Iterator[tuple[str, str, str, Callable[[Offer], bool]]]:
    """Each filter: its place in the file, its value, the attribute of an offer that it checks, and the check."""
    names, ranks = ", ".join(sorted(criteria.accelerators)), str(criteria.gpus_per_worker)
    zones, regions, types = (", ".join(each) for each in (criteria.zones, criteria.regions, criteria.machine_types))
    anywhere = structs.replace(criteria, zones=())
    yield "capacity.zones", zones, "zone", lambda offer: not criteria.zones or offer.zone in criteria.zones
    yield "capacity.regions", regions, "region", lambda offer: anywhere.allows_zone(offer.zone, offer.region)
    yield "capacity.accelerators", names, "accelerator", lambda offer: criteria.allows_accelerator(offer.accelerator)
    yield (
        "capacity.machine_types",
        types,
        "machine_type",
        lambda offer: criteria.allows_machine_type(offer.machine_type),
    )
    yield "workers.ranks", ranks, "gpus", lambda offer: offer.gpus == criteria.gpus_per_worker


def _nearest(given: str, offers: Sequence[Offer], attribute: str) -> str:
    """The offered values that are most similar to the given one."""
    values = [str(value) for value in sorted({getattr(each, attribute) for each in offers})]
    near = difflib.get_close_matches(given, values, n=SHOWN, cutoff=0.0) if len(values) > SHOWN else values
    return " or ".join(near)


def _unprofiled(market: Market, profile: Profile) -> Iterator[Problem]:
    offered = sorted({choice.accelerator for choice in market.options})
    if not set(offered) & profile.compute.keys():
        known = ", ".join(sorted(profile.compute)) or "none"
        yield "profile.compute", f"has {known}, but the allowed and offered machines have {', '.join(offered)}"


def _too_much(criteria: Criteria, market: Market, profile: Profile) -> Iterator[Problem]:
    """Problems of too many workers, and of too little money for them or for as many as are available."""
    name, most = _most_of_one_type(market)
    wrong = "but quotas, the share on demand or the global batch do not allow them"
    possible = criteria
    if most < criteria.min_workers:
        wrong = f"but at most {most} machines of one type ({name}) are available"
        possible = structs.replace(criteria, min_workers=most)
    cheapest = _cheapest(possible, market, profile)
    if cheapest is None:
        possible = structs.replace(criteria, min_workers=_nearest_size(possible, market, profile))
        cheapest = _cheapest(possible, market, profile)
        if cheapest is not None:
            full = limiting(market, CurrentCapacity(), cheapest.placement)
        else:
            full = too_small_for(criteria.min_workers, market, CurrentCapacity())
        page = f" (ask for more at {market.quotas.page})" if market.quotas.page else ""
        wrong = f"but {no_room(full)}{page}" if full else wrong
    if possible.min_workers < criteria.min_workers:
        yield "workers.min", f"is {criteria.min_workers}, {wrong}; {possible.min_workers or 'none'} would work"
    if cheapest is not None and cheapest.score is not None:
        yield from _too_expensive(possible, cheapest, cheapest.score.estimate.micro_usd_per_hour)


def _most_of_one_type(market: Market) -> tuple[str, int]:
    by_type: dict[str, int] = {}
    for choice in market.options:
        by_type[choice.accelerator] = by_type.get(choice.accelerator, 0) + limit_of(market, CurrentCapacity(), choice)
    return max(by_type.items(), key=lambda each: each[1])


def _too_expensive(criteria: Criteria, cheapest: Plan, hourly: int) -> Iterator[Problem]:
    count = criteria.min_workers
    least = f"{count} {'worker costs' if count == 1 else 'workers cost'} at least ${_up(hourly)} an hour"
    least += f" ({places(cheapest.placement)})"
    limit, total = criteria.max_micro_usd_per_hour, criteria.max_micro_usd_total
    if limit is not None and hourly > limit:
        yield "capacity.max_usd_per_hour", f"is ${_exact(limit)}, but {least}; at least {_up(hourly)}"
    useful = hourly * USEFUL_S // 3600
    if total is not None and total < useful:
        text = f"is ${_exact(total)}, but {least}, and ten minutes cost ${_up(useful)}; at least {_up(useful)}"
        yield "capacity.max_usd_total", text


def _cheapest(criteria: Criteria, market: Market, profile: Profile) -> Plan | None:
    """The cheapest plan an hour for the fewest workers: within the cap, or above it if the cap allows none."""
    fewest = structs.replace(criteria, max_workers=criteria.min_workers, objective=Objective.COST)
    return _cheapest_type(fewest, market, profile) or _cheapest_type(
        structs.replace(fewest, max_micro_usd_per_hour=None), market, profile
    )


def _cheapest_type(criteria: Criteria, market: Market, profile: Profile) -> Plan | None:
    found = []
    for accelerator in sorted({choice.accelerator for choice in market.options}):
        options = {choice: each for choice, each in market.options.items() if choice.accelerator == accelerator}
        made = plan(criteria, profile, structs.replace(market, options=options), tuning=_QUIET)
        if made.score is not None:
            found.append((made.score.estimate.micro_usd_per_hour, accelerator, made))
    return min(found, key=lambda each: each[:2])[2] if found else None


def _nearest_size(criteria: Criteria, market: Market, profile: Profile) -> int:
    """The nearest number of workers that is possible at any price: the fewest within the range, else the most below.

    A number without a proof that it is impossible counts as possible: no job is refused by mistake.
    """
    rich = structs.replace(criteria, objective=Objective.THROUGHPUT, max_micro_usd_per_hour=None)

    def is_any(least: int, most: int) -> bool:
        wanted = structs.replace(rich, min_workers=least, max_workers=most)
        made = plan(wanted, profile, market, tuning=_QUIET)
        return bool(made.placement) or not made.proven

    least, most = criteria.min_workers, criteria.max_workers
    if is_any(least, most):
        return least + bisect_left(range(least, most), True, key=lambda count: is_any(least, count))
    return bisect_left(range(1, least), True, key=lambda count: not is_any(count, least))


def _exact(amount: int) -> str:
    """The amount in cents or finer, as a person wrote it."""
    text = usd_text(amount, 6)
    return text[:-4] + text[-4:].rstrip("0")


def _up(amount: int) -> str:
    """The amount rounded up to cents, so that the suggested amount suffices."""
    return str((Decimal(amount) / MICRO_PER_USD).quantize(Decimal("0.01"), rounding=ROUND_CEILING))
