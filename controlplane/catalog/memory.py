"""The memory of zones: whether machines came, how long they took to boot, and how long they lived.

Every observation counts twice: in a recent tally, which fades in hours, and in a tally of its hour of the day, which
fades in weeks. As tallies fade, a prior takes their place, so that an unknown zone is neither certain nor hopeless.
Tallies only add up and fade: observations may come late and in any order.

Time is seconds since 1970, and hours are UTC.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, assert_never

from msgspec import Struct, structs

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MAX_AVAILABILITY_KEYS = 1024
"""More than all zones and accelerators of a cloud; a new key replaces the one with the oldest observation."""
FORGOTTEN = 1e-6
"""A value that has faded to this becomes 0."""


class Priors(Struct, frozen=True):
    """Assumed values for an unknown zone, and the number of observations that each is worth."""

    availability: float = 0.6
    availability_weight: float = 2.0
    lifetime_s: float = 4 * HOUR_S
    lifetime_weight: float = 1.0
    boot_s: float = 150.0
    boot_weight: float = 1.0
    late_half_life_s: float = 3 * HOUR_S
    hour_half_life_s: float = 10 * DAY_S


class AvailabilityKey(NamedTuple):
    """Machines that run out together."""

    zone: str
    accelerator: str


class Granted(Struct, frozen=True, tag=True):
    """A requested machine came."""

    zone: str
    accelerator: str
    at: float
    boot_s: float | None = None


class StockedOut(Struct, frozen=True, tag=True):
    zone: str
    accelerator: str
    at: float


class QuotaRefused(Struct, frozen=True, tag=True):
    """A quota refused a machine: our own limit, not the zone's availability, so it does not count for the hour."""

    zone: str
    accelerator: str
    at: float


class Lived(Struct, frozen=True, tag=True):
    """A machine ran for so long without being preempted: until it was removed, or until now."""

    zone: str
    accelerator: str
    at: float
    lived_s: float


class Taken(Struct, frozen=True, tag=True):
    """The cloud preempted a machine after so long, or so long after its last `Lived`."""

    zone: str
    accelerator: str
    at: float
    lived_s: float


Observation = Granted | StockedOut | QuotaRefused | Lived | Taken


class Tally(Struct, frozen=True, array_like=True):
    """Fading counts, as of the time of their `Seen`."""

    granted: float = 0.0
    stocked_out: float = 0.0
    quota_refused: float = 0.0
    taken: float = 0.0
    lived_s: float = 0.0
    booted: float = 0.0
    booting_s: float = 0.0


class Seen(Struct, frozen=True):
    """The tallies of one key, all as of `at`."""

    at: float
    late: Tally = Tally()
    by_hour: Mapping[int, Tally] = MappingProxyType({})


class Memory(Struct, frozen=True):
    availability: Mapping[AvailabilityKey, Seen] = MappingProxyType({})
    priors: Priors = Priors()


class Estimate(Struct, frozen=True):
    availability: float
    """The probability that a requested machine comes."""
    mean_lifetime_s: float
    boot_s: float
    observations: float
    """The faded number of observations behind the estimate; 0 for the prior only."""


def learn(memory: Memory, observation: Observation) -> Memory:
    availability_key = AvailabilityKey(observation.zone, observation.accelerator)
    known = memory.availability.get(availability_key) or Seen(observation.at)
    now = max(known.at, observation.at)
    faded = _faded(known, now, memory.priors)
    hour, age_s = hour_of(observation.at), now - observation.at
    late = _scaled(_counted(observation), fade(age_s, memory.priors.late_half_life_s))
    hourly = _scaled(_hourly(observation), fade(age_s, memory.priors.hour_half_life_s))
    seen = structs.replace(
        faded,
        late=_sum(faded.late, late),
        by_hour=MappingProxyType({**faded.by_hour, hour: _sum(faded.by_hour.get(hour, Tally()), hourly)}),
    )
    availability = {**memory.availability, availability_key: seen}
    while len(availability) > MAX_AVAILABILITY_KEYS:
        del availability[min(availability, key=lambda each: (availability[each].at, each))]
    return structs.replace(memory, availability=MappingProxyType(availability))


def estimate(memory: Memory, zone: str, accelerator: str, at: float) -> Estimate:
    priors = memory.priors
    seen = memory.availability.get(AvailabilityKey(zone, accelerator))
    if seen is None:
        return Estimate(priors.availability, priors.lifetime_s, priors.boot_s, 0.0)
    now = _faded(seen, max(at, seen.at), priors)
    both = _sum(now.late, now.by_hour.get(hour_of(at), Tally()))
    refused = both.stocked_out + both.quota_refused
    return Estimate(
        availability=_mean(priors.availability, priors.availability_weight, both.granted, both.granted + refused),
        mean_lifetime_s=_mean(priors.lifetime_s, priors.lifetime_weight, both.lived_s, both.taken),
        boot_s=_mean(priors.boot_s, priors.boot_weight, both.booting_s, both.booted),
        observations=both.granted + refused + both.taken,
    )


def hour_of(at: float) -> int:
    return int(at % DAY_S // HOUR_S)


def fade(age_s: float, half_life_s: float) -> float:
    return float(0.5 ** (age_s / half_life_s))


def _mean(prior: float, weight: float, total: float, count: float) -> float:
    """The mean with its prior. Lifetimes: the time lived by all machines, divided by the number of preempted ones."""
    return (prior * weight + total) / (weight + count)


def _counted(observation: Observation) -> Tally:
    match observation:
        case Granted():
            if observation.boot_s is None:
                return Tally(granted=1.0)
            return Tally(granted=1.0, booted=1.0, booting_s=observation.boot_s)
        case StockedOut():
            return Tally(stocked_out=1.0)
        case QuotaRefused():
            return Tally(quota_refused=1.0)
        case Lived():
            return Tally(lived_s=observation.lived_s)
        case Taken():
            return Tally(taken=1.0, lived_s=observation.lived_s)
    assert_never(observation)


def _hourly(observation: Observation) -> Tally:
    return Tally() if isinstance(observation, QuotaRefused) else _counted(observation)


def _faded(seen: Seen, now: float, priors: Priors) -> Seen:
    age_s = now - seen.at
    hourly = fade(age_s, priors.hour_half_life_s)
    by_hour = {hour: _scaled(tally, hourly) for hour, tally in seen.by_hour.items()}
    return structs.replace(
        seen,
        at=now,
        late=_scaled(seen.late, fade(age_s, priors.late_half_life_s)),
        by_hour=MappingProxyType({hour: tally for hour, tally in by_hour.items() if tally != Tally()}),
    )


def _scaled(tally: Tally, by: float) -> Tally:
    return Tally(*(value * by if value * by > FORGOTTEN else 0.0 for value in structs.astuple(tally)))


def _sum(one: Tally, other: Tally) -> Tally:
    return Tally(*(a + b for a, b in zip(structs.astuple(one), structs.astuple(other), strict=True)))
