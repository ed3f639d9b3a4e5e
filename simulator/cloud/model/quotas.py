"""What a project may hold in a region, by Compute's metrics."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from simulator.cloud.model.names import region_of
from simulator.cloud.model.state import Cloud, PoolSpec
from simulator.market.accelerators import ACCELERATORS, CPU, accelerator


@dataclass(frozen=True, slots=True)
class Short:
    metric: str
    wanted: int
    limit: int
    free: int


def needs(spec: PoolSpec) -> Mapping[str, int]:
    """What one node takes, by metric."""
    prefix = "PREEMPTIBLE_" if spec.spot else ""
    cpus = {f"{prefix}CPUS": spec.machine.vcpus}
    if not spec.accelerator:
        return cpus
    return {f"{prefix}{ACCELERATORS[spec.accelerator].quota}": spec.accelerators, **cpus}


def limit_of(cloud: Cloud, project: str, region: str, metric: str) -> int:
    default = cloud.rules.default_cpus if metric.endswith("CPUS") else cloud.rules.default_quota
    return cloud.quotas.get((project, region, metric), default)


def usage(cloud: Cloud) -> Counter[tuple[str, str, str]]:
    """Of everything that is held, by project, region and metric."""
    used: Counter[tuple[str, str, str]] = Counter()
    for node in cloud.nodes.values():
        if node.instance is not None:
            for metric, amount in needs(cloud.pools[node.pool].spec).items():
                used[node.pool.project, region_of(node.zone), metric] += amount
    return used


def metrics(cloud: Cloud, project: str, region: str) -> list[str]:
    """All that a region has a quota for."""
    known = [each.quota for each in ACCELERATORS.values() if each.name != CPU] + ["CPUS"]
    both = [f"{prefix}{quota}" for quota in known for prefix in ("", "PREEMPTIBLE_")]
    set_by_hand = [metric for of, where, metric in cloud.quotas if (of, where) == (project, region)]
    return list(dict.fromkeys([*both, *set_by_hand]))


def shortfall(cloud: Cloud, project: str, spec: PoolSpec, zone: str, nodes: int) -> Short | None:
    """What keeps the project from having so many more, if anything does."""
    region = region_of(zone)
    used = usage(cloud)
    for metric, amount in needs(spec).items():
        limit = limit_of(cloud, project, region, metric)
        free = max(0, limit - used[project, region, metric])
        if amount * nodes > free:
            return Short(metric, amount * nodes, limit, free)
    return None


def metric_named(name: str) -> str | None:
    """Compute's metric, or that of spot nodes with an accelerator of this name; None if there is none."""
    known = accelerator(name)
    if known is not None:
        return f"PREEMPTIBLE_{known.quota}"
    return name if name.isupper() and name.endswith(("_GPUS", "CPUS")) else None
