"""What is remembered of the places machines come from: when they had none, and when they took some back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from controlplane.allocator.backoff import pause_s
from controlplane.allocator.state import Allocator, Availability, Closure, Shortage
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.outcomes import QuotaExceeded, Refused, StockedOut


def close(
    allocator: Allocator,
    stock: MachineKind,
    shortage: Shortage,
    detail: str,
    now_s: float,
    *,
    hint: str = "",
    until_s: float | None = None,
) -> Allocator:
    """Nothing more is asked for there for a while, which doubles with each time of the same kind.

    `until_s`: where it is known when there is room again; that is no failure of the quota.
    """
    settings, known = allocator.settings, _closure(allocator, stock, shortage)
    first_s, most_s = settings.stockout_s, settings.stockout_max_s
    if shortage is not Shortage.STOCKOUT:
        first_s, most_s = settings.quota_s, settings.quota_max_s
    failures = known.failures if known is not None else 0
    if until_s is not None:
        return _close(allocator, stock, Closure(shortage, now_s, until_s, failures, detail, hint))
    until_s = now_s + pause_s(first_s, most_s, failures)
    return _close(allocator, stock, Closure(shortage, now_s, until_s, failures + 1, detail, hint))


def close_for(
    allocator: Allocator, stock: MachineKind, reason: StockedOut | QuotaExceeded | Refused, now_s: float
) -> Allocator:
    match reason:
        case StockedOut(detail):
            return close(allocator, stock, Shortage.STOCKOUT, detail, now_s)
        case QuotaExceeded(detail):
            closed = close(allocator, stock, Shortage.QUOTA, detail, now_s)
            return replace(closed, quota_refused_s=now_s)
        case Refused(detail, hint):
            return close(allocator, stock, Shortage.REFUSED, detail, now_s, hint=hint)
        case _:
            assert_never(reason)


def reopen(allocator: Allocator, stock: MachineKind) -> Allocator:
    return _put(allocator, stock, replace(availability_of(allocator, stock), closures=()))


def reopen_after(allocator: Allocator, given_back: MachineKind) -> Allocator:
    """Machines of this stock went back: there are some again, and the quota of their region has room."""
    for stock, known in allocator.availability.items():
        if stock == given_back:
            allocator = reopen(allocator, stock)
        elif stock.region == given_back.region:
            left = tuple(each for each in known.closures if each.shortage is not Shortage.QUOTA)
            allocator = _put(allocator, stock, replace(known, closures=left))
    return allocator


def distrust(allocator: Allocator, stock: MachineKind, now_s: float) -> Allocator:
    until_s = now_s + allocator.settings.loss_cooldown_s
    return _put(allocator, stock, replace(availability_of(allocator, stock), distrusted_until_s=until_s))


def is_closed(allocator: Allocator, stock: MachineKind, now_s: float) -> bool:
    until_s = availability_of(allocator, stock).closed_until_s
    return until_s is not None and now_s < until_s


def is_distrusted(allocator: Allocator, stock: MachineKind, now_s: float) -> bool:
    until_s = availability_of(allocator, stock).distrusted_until_s
    return until_s is not None and now_s < until_s


def is_unsure(allocator: Allocator, stock: MachineKind, now_s: float) -> bool:
    """It had nothing lately, and nobody has tried since: too little to give up for it what runs."""
    short_s = availability_of(allocator, stock).short_s
    return short_s is not None and now_s < short_s + allocator.settings.wary_s


def availability_of(allocator: Allocator, stock: MachineKind) -> Availability:
    return allocator.availability.get(stock, Availability())


def newly_closed(
    before: Mapping[MachineKind, Availability], after: Mapping[MachineKind, Availability]
) -> list[tuple[MachineKind, Closure]]:
    """Refusals that were learned of in between."""
    return [
        (stock, closure)
        for stock, known in after.items()
        for closure in known.closures
        if closure not in before.get(stock, Availability()).closures
    ]


def _close(allocator: Allocator, stock: MachineKind, closure: Closure) -> Allocator:
    known = availability_of(allocator, stock)
    others = (each for each in known.closures if each.shortage is not closure.shortage)
    return _put(allocator, stock, replace(known, closures=(*others, closure)))


def _closure(allocator: Allocator, stock: MachineKind, shortage: Shortage) -> Closure | None:
    closures = availability_of(allocator, stock).closures
    return next((each for each in closures if each.shortage is shortage), None)


def _put(allocator: Allocator, stock: MachineKind, known: Availability) -> Allocator:
    return replace(allocator, availability={**allocator.availability, stock: known})
