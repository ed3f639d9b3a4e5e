"""What is remembered of the places machines come from: when they had none, and when they took some back."""

from dataclasses import replace

from controlplane.allocator.offers import Stock
from controlplane.allocator.pauses import pause_s
from controlplane.allocator.state import Allocator, Shelf, Shortage


def close(
    allocator: Allocator, stock: Stock, shortage: Shortage, detail: str, now_s: float, *, hint: str = ""
) -> Allocator:
    """Nothing more is asked for there for a while, which doubles each time."""
    settings, shelf = allocator.settings, shelf_of(allocator, stock)
    first_s, most_s = settings.stockout_s, settings.stockout_max_s
    if shortage is not Shortage.STOCKOUT:
        first_s, most_s = settings.quota_s, settings.quota_max_s
    until_s = max(now_s + pause_s(first_s, most_s, shelf.failures), shelf.closed_until_s or 0.0)
    closed = replace(
        shelf,
        failures=shelf.failures + 1,
        closed_until_s=until_s,
        short_s=now_s,
        shortage=shortage,
        detail=detail,
        hint=hint,
    )
    return _put(allocator, stock, closed)


def reopen(allocator: Allocator, stock: Stock) -> Allocator:
    shelf = shelf_of(allocator, stock)
    return _put(allocator, stock, replace(shelf, failures=0, closed_until_s=None, short_s=None, detail="", hint=""))


def reopen_after(allocator: Allocator, given_back: Stock) -> Allocator:
    """Machines of this stock went back: there are some again, and the quota of their region has room."""
    for stock, shelf in allocator.shelves.items():
        in_quota = shelf.shortage is Shortage.QUOTA and _region(stock) == _region(given_back)
        if shelf.closed_until_s is not None and (stock == given_back or in_quota):
            allocator = reopen(allocator, stock)
    return allocator


def distrust(allocator: Allocator, stock: Stock, now_s: float) -> Allocator:
    until_s = now_s + allocator.settings.loss_cooldown_s
    return _put(allocator, stock, replace(shelf_of(allocator, stock), distrusted_until_s=until_s))


def is_closed(allocator: Allocator, stock: Stock, now_s: float) -> bool:
    until_s = shelf_of(allocator, stock).closed_until_s
    return until_s is not None and now_s < until_s


def is_distrusted(allocator: Allocator, stock: Stock, now_s: float) -> bool:
    until_s = shelf_of(allocator, stock).distrusted_until_s
    return until_s is not None and now_s < until_s


def is_unsure(allocator: Allocator, stock: Stock, now_s: float) -> bool:
    """It had nothing lately, and nobody has tried since: too little to give up for it what runs."""
    short_s = shelf_of(allocator, stock).short_s
    return short_s is not None and now_s < short_s + allocator.settings.wary_s


def shelf_of(allocator: Allocator, stock: Stock) -> Shelf:
    return allocator.shelves.get(stock, Shelf())


def _region(stock: Stock) -> str:
    return stock.zone.rpartition("-")[0]


def _put(allocator: Allocator, stock: Stock, shelf: Shelf) -> Allocator:
    return replace(allocator, shelves={**allocator.shelves, stock: shelf})
