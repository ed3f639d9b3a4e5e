"""Generated markets and markets from a trace: prices and capacities of zones over time."""

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from controlplane.catalog.accelerators import BY_NAME, canonical
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.links import Links
from controlplane.catalog.money import MicroDollars
from controlplane.planning.market import Market, Option
from controlplane.throughput.profile import Compute, Profile

MACHINES: Final = {"T4": "n1-standard-8", "L4": "g2-standard-8", "A100-40": "a2-highgpu-1g"}
USD_PER_HOUR: Final = {"T4": 0.25, "L4": 0.5, "A100-40": 1.5}
REGIONS: Final = (
    *("us-central1", "europe-west4", "us-east1", "us-west1", "asia-east1", "us-east4", "europe-west1", "us-west4"),
    *("asia-northeast1", "europe-west2", "asia-south1", "us-south1", "europe-west3", "us-west2", "europe-west9"),
    *("asia-southeast1", "us-west3", "us-east5", "europe-north1", "northamerica-northeast1", "southamerica-east1"),
    *("australia-southeast1", "europe-west6", "asia-northeast3", "me-west1", "europe-central2", "europe-west8"),
    *("asia-east2", "asia-south2", "asia-southeast2", "australia-southeast2", "africa-south1", "europe-west10"),
    "europe-southwest1",
)
PROFILE: Final = Profile(
    compute={"T4": Compute(0.4), "L4": Compute(0.2), "A100-40": Compute(0.06)},
    gradient_bytes=1_400_000_000,
    global_batch=1024,
    overlap=0.5,
)
"""Profile of a model with 350 million parameters in single precision."""
NETWORK_BIT_PER_S: Final = 16e9
DAY_S: Final = 86_400.0
TICK_S: Final = 900.0


class Quote(NamedTuple):
    usd_per_hour: float
    capacity: int


Quotes = Mapping[tuple[str, str], Quote]
"""Quotes by zone and accelerator."""


class Tick(NamedTuple):
    at_s: float
    quotes: Quotes


def zones(count: int) -> list[str]:
    """Zone names, three per region."""
    return [f"{REGIONS[number // 3]}-{'abc'[number % 3]}" for number in range(count)]


def generated(count: int, seed: int, most: int, accelerators: Sequence[str] = tuple(MACHINES)) -> Quotes:
    chance = random.Random(seed)
    return {
        (zone, name): Quote(USD_PER_HOUR[name] * chance.uniform(0.7, 1.5), chance.randint(1, most))
        for zone in zones(count)
        for name in accelerators
    }


def generated_day(count: int, seed: int, most: int) -> list[Tick]:
    """A day in which prices vary around their mean, capacities change, and some zones have nothing for an hour."""
    chance = random.Random(seed)
    means = generated(count, seed, most)
    shortage_s = dict.fromkeys((zone for zone, _ in means), 0.0)
    ticks = []
    for number in range(int(DAY_S / TICK_S)):
        at_s = number * TICK_S
        for zone in shortage_s:
            if chance.random() < 0.01:
                shortage_s[zone] = at_s + 3600.0
        ticks.append(Tick(at_s, {key: _now(mean, at_s < shortage_s[key[0]], chance) for key, mean in means.items()}))
    return ticks


def _now(mean: Quote, is_short: bool, chance: random.Random) -> Quote:
    capacity = 0 if is_short else max(0, mean.capacity + chance.randint(-1, 1))
    return Quote(mean.usd_per_hour * (1 + chance.uniform(-0.05, 0.05)), capacity)


def traced(path: Path) -> list[Tick]:
    """A trace of the simulator: `time_s,zone,accelerator,capacity,price`; an empty field leaves a value unchanged."""
    quotes: dict[tuple[str, str], Quote] = {}
    ticks: list[Tick] = []
    with path.open(newline="") as file:
        for row in sorted(csv.DictReader(file), key=lambda row: float(row["time_s"])):
            name = canonical(row["accelerator"])
            if name not in MACHINES:
                continue
            before = quotes.get((row["zone"], name), Quote(USD_PER_HOUR[name], 0))
            price, capacity = row.get("price") or before.usd_per_hour, row.get("capacity") or before.capacity
            quotes[row["zone"], name] = Quote(float(price), int(capacity))
            at_s = float(row["time_s"])
            if ticks and ticks[-1].at_s == at_s:
                ticks.pop()
            ticks.append(Tick(at_s, dict(quotes)))
    return ticks


def market_at(quotes: Quotes, links: Links) -> Market:
    found = {option.choice: option for option in _options(quotes)}
    return Market({choice: found[choice] for choice in sorted(found)}, links)


def _options(quotes: Quotes) -> Iterator[Option]:
    for (zone, name), quote in quotes.items():
        if quote.capacity > 0 and name in BY_NAME:
            yield Option(
                choice=MachineKind(zone, MACHINES[name], name, 1, True),
                gpus=1,
                micro_usd_per_hour=MicroDollars(round(quote.usd_per_hour * 1_000_000)),
                network_bit_per_s=NETWORK_BIT_PER_S,
                limit=quote.capacity,
            )
