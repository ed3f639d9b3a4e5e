"""What the allocator remembers of each kind of machine: when the cloud refused it and when it preempted some."""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from controlplane.allocator.state import Allocator, Availability, Closure, Shortage
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.outcomes import QuotaExceeded, Refused, StockedOut
from runtime.backoff import pause_after


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
    """Stop requests for this kind of machine for a pause, which doubles with each shortage of the same kind.

    `until_s`: when there is room again, if that is known; such a shortage does not count as a failure.
    """
    settings, known = allocator.settings, _closure(allocator, stock, shortage)
    first_s, most_s = settings.stockout_s, settings.stockout_max_s
    if shortage is not Shortage.STOCKOUT:
        first_s, most_s = settings.quota_s, settings.quota_max_s
    failures = known.failures if known is not None else 0
    if until_s is not None:
        return _close(allocator, stock, Closure(shortage, now_s, until_s, failures, detail, hint))
    until_s = now_s + pause_after(failures + 1, first_s, most_s)
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
    """Allow requests again after machines went back: their zone has some, and their region's quota has room."""
    for stock, known in allocator.availability.items():
        if stock == given_back:
            allocator = reopen(allocator, stock)
        elif stock.region == given_back.region:
            left = tuple(each for each in known.closures if each.shortage is not Shortage.QUOTA)
            allocator = _put(allocator, stock, replace(known, closures=left))
    return allocator


def start_cooldown(allocator: Allocator, stock: MachineKind, now_s: float) -> Allocator:
    until_s = now_s + allocator.settings.loss_cooldown_s
    return _put(allocator, stock, replace(availability_of(allocator, stock), cooldown_until_s=until_s))


def is_closed(allocator: Allocator, stock: MachineKind, now_s: float) -> bool:
    until_s = availability_of(allocator, stock).closed_until_s
    return until_s is not None and now_s < until_s


def is_in_cooldown(allocator: Allocator, stock: MachineKind, now_s: float) -> bool:
    until_s = availability_of(allocator, stock).cooldown_until_s
    return until_s is not None and now_s < until_s


def was_refused_recently(allocator: Allocator, stock: MachineKind, now_s: float) -> bool:
    """Report whether the cloud recently refused this kind: then running nodes do not move to it."""
    short_s = availability_of(allocator, stock).short_s
    return short_s is not None and now_s < short_s + allocator.settings.wary_s


def availability_of(allocator: Allocator, stock: MachineKind) -> Availability:
    return allocator.availability.get(stock, Availability())


def newly_closed(
    before: Mapping[MachineKind, Availability], after: Mapping[MachineKind, Availability]
) -> list[tuple[MachineKind, Closure]]:
    """Closures that are in `after` but not in `before`."""
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
