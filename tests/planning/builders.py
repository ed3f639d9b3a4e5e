"""Markets of a few zones, jobs that train in them, and all their placements, to compare a plan with."""

from collections.abc import Mapping
from typing import Any

from benchmarks.plans.exhaustive import every_placement
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.links import Links
from controlplane.catalog.money import MicroDollars
from controlplane.clouds.interface import PROJECT, Needs, QuotaKey
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Option, Quotas
from controlplane.planning.scoring import SortKey, is_affordable, is_better, score, sort_key
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Compute, Profile
from tests.throughput.builders import some_links

IOWA_A, IOWA_B, OREGON, HOLLAND = "us-central1-a", "us-central1-b", "us-west1-a", "europe-west4-a"
USD = 1_000_000
MACHINES = {"L4": "g2-standard-8", "A100-40": "a2-highgpu-1g", "T4": "n1-standard-8"}


def a_choice(zone: str = IOWA_A, accelerator: str = "L4", *, spot: bool = True) -> MachineKind:
    return MachineKind(zone, MACHINES[accelerator], accelerator, 1, spot)


def an_option(
    zone: str = IOWA_A, accelerator: str = "L4", usd: float = 0.5, *, spot: bool = True, **changes: Any
) -> Option:
    given: dict[str, Any] = {
        "choice": a_choice(zone, accelerator, spot=spot),
        "gpus": 1,
        "micro_usd_per_hour": MicroDollars(round(usd * USD)),
        "network_bit_per_s": 16e9,
        "limit": 8,
        **changes,
    }
    return Option(**given)


def gpus_of(region: str, accelerator: str = "L4", *, spot: bool = True) -> QuotaKey:
    return QuotaKey(region, f"{accelerator}_SPOT" if spot else accelerator)


def disks_of(region: str) -> QuotaKey:
    return QuotaKey(region, "DISK_GB")


ALL_GPUS = QuotaKey(PROJECT, "GPUS")
DISK_GB = 100


def needs_of(choice: MachineKind, gpus: int = 1) -> Needs:
    """Quotas like a cloud's: GPUs by kind and region, disks that all kinds of a region share, GPUs of all regions."""
    own = gpus_of(choice.region, choice.accelerator, spot=choice.spot)
    return {own: gpus, disks_of(choice.region): DISK_GB, ALL_GPUS: gpus}


def a_market(*options: Option, links: Links | None = None, quotas: Mapping[QuotaKey, int] | None = None) -> Market:
    found = {option.choice: option for option in options or (an_option(),)}
    known = {choice: found[choice] for choice in sorted(found)}
    needs = {choice: needs_of(choice, option.gpus) for choice, option in known.items()} if quotas else {}
    return Market(known, links or some_links(), Quotas(quotas or {}, needs))


def a_small_profile(**changes: Any) -> Profile:
    """Steps of some seconds with gradients of 10 MB: regions are near."""
    given: dict[str, Any] = {
        "compute": {"L4": Compute(0.1), "A100-40": Compute(0.02), "T4": Compute(0.3)},
        "gradient_bytes": 10**7,
        "global_batch": 128,
        **changes,
    }
    return Profile(**given)


def some_criteria(**changes: Any) -> Criteria:
    given: dict[str, Any] = {"min_workers": 1, "max_workers": 8, **changes}
    return Criteria(**given)


def best_sort_key(criteria: Criteria, profile: Profile, market: Market, tuning: Tuning) -> SortKey | None:
    best: SortKey | None = None
    for nodes in every_placement(criteria, market, CurrentCapacity()):
        found = score(profile, market, nodes, tuning)
        if found is not None and is_affordable(criteria, found):
            mine = sort_key(found, criteria)
            if best is None or is_better(mine, best):
                best = mine
    return best
