"""The options of one accelerator as arrays, with the least and the most nodes of each."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import QuotaKey
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Option, Quotas
from controlplane.planning.quotas import Amounts
from controlplane.planning.scoring import crowd_price, may_spread, risk_parts
from controlplane.planning.step_times import Bools, Floats, Ints, Paces, paces_of
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile


class Range(Struct, frozen=True):
    """The least and the most nodes, by choice."""

    least: Mapping[MachineKind, int]
    most: Mapping[MachineKind, int]


class Shared(Struct, frozen=True):
    """A quota that some of the options use."""

    needs: Mapping[int, int]
    """What one node needs, by number of the option."""
    limit: float


class Field(Struct, frozen=True):
    accelerator: str
    options: tuple[Option, ...]
    price: Floats
    """Micro-dollars an hour, like `risk` and `risk_per_worker`."""
    risk: Floats
    risk_per_worker: Floats
    least: Ints
    most: Ints
    spot: Bools
    paces: Paces
    crowd_price: Mapping[str, float]
    """By zone; empty if there is only one zone."""
    quotas: tuple[Shared, ...]
    room: float
    """The most nodes that quotas allow, all options together."""
    room_by_region: Mapping[str, float]
    """Like `room`, for the options of one region."""
    room_by_region_and_kind: Mapping[tuple[str, bool], float]
    """Like `room`, for the spot options (true) or the on-demand options (false) of one region."""
    cards_bit_per_s: float
    by_zone: Mapping[str, tuple[int, ...]]
    """Numbers of the options of each zone."""

    @property
    def zones(self) -> list[str]:
        return list(self.by_zone)


def field_of(
    accelerator: str,
    criteria: Criteria,
    profile: Profile,
    market: Market,
    within: Range,
    limits: Amounts,
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
    quotas = _quotas(options, market.quotas, limits)
    by_region: dict[str, list[int]] = {}
    by_region_and_kind: dict[tuple[str, bool], list[int]] = {}
    for number, option in enumerate(options):
        by_region.setdefault(option.choice.region, []).append(number)
        by_region_and_kind.setdefault((option.choice.region, option.choice.spot), []).append(number)
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
        quotas=quotas,
        room=_room(quotas, range(len(options))),
        room_by_region={region: _room(quotas, numbers) for region, numbers in by_region.items()},
        room_by_region_and_kind={key: _room(quotas, numbers) for key, numbers in by_region_and_kind.items()},
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


def _quotas(options: tuple[Option, ...], quotas: Quotas, limits: Amounts) -> tuple[Shared, ...]:
    by_key: dict[QuotaKey, dict[int, int]] = {}
    for number, option in enumerate(options):
        for key, amount in quotas.needs.get(option.choice, {}).items():
            by_key.setdefault(key, {})[number] = amount
    return tuple(Shared(needs, limits[key]) for key, needs in by_key.items() if key in limits)


def _room(quotas: Iterable[Shared], numbers: Sequence[int]) -> float:
    """The most nodes that the quotas used by all of these options allow."""
    shared = (quota for quota in quotas if quota.needs.keys() >= set(numbers))
    return min((quota.limit // min(quota.needs[number] for number in numbers) for quota in shared), default=math.inf)
