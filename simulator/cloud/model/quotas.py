"""Quotas of a project, by Compute's metrics: for one region, or for all regions together.

The defaults are those of a project that requested only GPU quota. A spot quota of 0 means that none was granted: spot
nodes then count against the ordinary quota.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from simulator.cloud.model.names import region_of
from simulator.cloud.model.state import Cloud, PoolSpec
from simulator.market.markets import ACCELERATORS, CPU, accelerator

PROJECT_WIDE = ""
"""The scope of a quota that all regions share; every other scope is a region."""
SPOT = "PREEMPTIBLE_"
CPUS = ACCELERATORS[CPU].quota
GPUS = tuple(each.quota for each in ACCELERATORS.values() if each.name != CPU)
_REGIONAL = MappingProxyType(
    {
        CPUS: 96,
        f"{SPOT}{CPUS}": 0,
        "SSD_TOTAL_GB": 500,
        "DISKS_TOTAL_GB": 4096,
        "IN_USE_ADDRESSES": 8,
        "INSTANCES": 960,
    }
)
_EVERYWHERE = MappingProxyType({"CPUS_ALL_REGIONS": 200, "GPUS_ALL_REGIONS": 64})
_DISKS = {"pd-standard": "DISKS_TOTAL_GB", "pd-balanced": "SSD_TOTAL_GB", "pd-ssd": "SSD_TOTAL_GB"}

Usage = Counter[tuple[str, str, str]]
"""Amounts by project, scope and metric."""


@dataclass(frozen=True, slots=True)
class Short:
    scope: str
    metric: str
    wanted: int
    limit: int
    free: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Additional nodes of one pool in one zone."""

    spec: PoolSpec
    zone: str
    nodes: int


def needs(cloud: Cloud, project: str, spec: PoolSpec, zone: str) -> Mapping[tuple[str, str], int]:
    """Quota that one node uses, by scope and metric."""
    region = region_of(zone)

    def metric(name: str) -> tuple[str, str]:
        is_spot = spec.spot and limit_of(cloud, project, region, f"{SPOT}{name}") > 0
        return region, f"{SPOT}{name}" if is_spot else name

    found = {
        metric(CPUS): spec.machine.vcpus,
        (PROJECT_WIDE, "CPUS_ALL_REGIONS"): spec.machine.vcpus,
        (region, "INSTANCES"): 1,
    }
    if spec.disk_type in _DISKS:
        found[region, _DISKS[spec.disk_type]] = spec.disk_gb
    if not spec.private:
        found[region, "IN_USE_ADDRESSES"] = 1
    if spec.accelerator:
        found[metric(ACCELERATORS[spec.accelerator].quota)] = spec.accelerators
        found[PROJECT_WIDE, "GPUS_ALL_REGIONS"] = spec.accelerators
    return found


def limit_of(cloud: Cloud, project: str, scope: str, metric: str) -> int:
    default = _EVERYWHERE.get(metric, _REGIONAL.get(metric, cloud.rules.default_quota))
    return cloud.quotas.get((project, scope, metric), default)


def usage(cloud: Cloud) -> Usage:
    """Quota that all instances use."""
    used: Usage = Counter()
    for node in cloud.nodes.values():
        if node.instance is not None:
            count(used, cloud, node.pool.project, cloud.pools[node.pool].spec, node.zone)
    return used


def count(used: Usage, cloud: Cloud, project: str, spec: PoolSpec, zone: str) -> None:
    for (scope, metric), amount in needs(cloud, project, spec, zone).items():
        used[project, scope, metric] += amount


def metrics(scope: str) -> list[str]:
    if scope == PROJECT_WIDE:
        return list(_EVERYWHERE)
    return [*_REGIONAL, *(f"{prefix}{gpus}" for gpus in GPUS for prefix in ("", SPOT))]


def shortfalls(cloud: Cloud, project: str, wanted: Iterable[Wanted]) -> list[Short]:
    """Every quota that is too small for all of these nodes together."""
    asked: Counter[tuple[str, str]] = Counter()
    for each in wanted:
        for key, amount in needs(cloud, project, each.spec, each.zone).items():
            asked[key] += amount * each.nodes
    return list(_shortfalls(cloud, project, asked)) if any(asked.values()) else []


def _shortfalls(cloud: Cloud, project: str, asked: Mapping[tuple[str, str], int]) -> Iterator[Short]:
    used = usage(cloud)
    for (scope, metric), amount in asked.items():
        limit = limit_of(cloud, project, scope, metric)
        free = max(0, limit - used[project, scope, metric])
        if amount > free:
            yield Short(scope, metric, amount, limit, free)


def metrics_named(name: str) -> tuple[str, ...]:
    """The metric itself, or both metrics of an accelerator (spot and on demand); empty if unknown."""
    known = accelerator(name)
    if known is not None:
        return known.quota, f"{SPOT}{known.quota}"
    return (name,) if name in metrics(PROJECT_WIDE) or name in metrics("region") else ()


def scope_of(metric: str, region: str) -> str:
    return PROJECT_WIDE if is_project_wide(metric) else region


def is_project_wide(metric: str) -> bool:
    return metric in _EVERYWHERE
