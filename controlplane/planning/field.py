"""The options of one accelerator as arrays, with how many nodes of each there must be and may be."""

import math
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Choice, Market, Option, QuotaKey
from controlplane.planning.paces import Bools, Floats, Ints, Paces, paces_of
from controlplane.planning.scoring import crowd_price, may_spread, risk_parts
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile


class Range(Struct, frozen=True):
    """Of nodes, by choice."""

    least: Mapping[Choice, int]
    most: Mapping[Choice, int]


class Field(Struct, frozen=True):
    accelerator: str
    options: tuple[Option, ...]
    price: Floats
    """Micro-dollars an hour, as are the next two."""
    risk: Floats
    risk_per_worker: Floats
    least: Ints
    most: Ints
    spot: Bools
    paces: Paces
    crowd_price: Mapping[str, float]
    """By zone; empty where there is nowhere to spread to."""
    quotas: tuple[tuple[tuple[int, ...], float], ...]
    """Options, and how many nodes of them together."""
    cards_bit_per_s: float
    by_zone: Mapping[str, tuple[int, ...]]
    """The options of each zone."""

    @property
    def zones(self) -> list[str]:
        return list(self.by_zone)


def field_of(
    accelerator: str,
    criteria: Criteria,
    profile: Profile,
    market: Market,
    within: Range,
    quota: Mapping[QuotaKey, float],
    tuning: Tuning,
) -> Field | None:
    options = tuple(
        option
        for choice, option in market.options.items()
        if choice.accelerator == accelerator and within.most.get(choice, 0) > 0
    )
    if not options:
        return None
    paces = paces_of(profile, accelerator, options[0].gpus, criteria.max_workers)
    if paces is None:
        return None
    parts = [risk_parts(option, tuning) for option in options]
    return Field(
        accelerator=accelerator,
        options=options,
        price=np.array([float(option.micro_usd_per_hour) for option in options]),
        risk=np.array([fixed for fixed, _ in parts]),
        risk_per_worker=np.array([each for _, each in parts]),
        least=np.array([within.least.get(option.choice, 0) for option in options]),
        most=np.array([within.most[option.choice] for option in options]),
        spot=np.array([option.choice.spot for option in options]),
        paces=paces,
        crowd_price=_crowd_prices(accelerator, market, tuning),
        quotas=_quotas(options, quota),
        cards_bit_per_s=max(option.network_bit_per_s for option in options) * market.links.network_share,
        by_zone=_by_zone(options),
    )


def _by_zone(options: tuple[Option, ...]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for number, option in enumerate(options):
        found.setdefault(option.choice.zone, []).append(number)
    return {zone: tuple(numbers) for zone, numbers in found.items()}


def _crowd_prices(accelerator: str, market: Market, tuning: Tuning) -> dict[str, float]:
    if not may_spread(market, accelerator):
        return {}
    by_zone: dict[str, list[Option]] = {}
    for choice, option in market.options.items():
        if choice.accelerator == accelerator:
            by_zone.setdefault(choice.zone, []).append(option)
    return {zone: crowd_price(options, tuning) for zone, options in by_zone.items()}


def _quotas(options: tuple[Option, ...], quota: Mapping[QuotaKey, float]) -> tuple[tuple[tuple[int, ...], float], ...]:
    shared: dict[QuotaKey, list[int]] = {}
    for number, option in enumerate(options):
        choice = option.choice
        shared.setdefault(QuotaKey(choice.region, choice.accelerator, choice.spot), []).append(number)
    return tuple(
        (tuple(numbers), quota[key] // options[numbers[0]].gpus)
        for key, numbers in shared.items()
        if math.isfinite(quota.get(key, math.inf))
    )
