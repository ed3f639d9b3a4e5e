"""Compute's quotas: what one node of a pool needs of each, and how to read a refusal.

A metric that Compute does not list limits nothing here; if it does limit, GKE refuses the request.
"""

import re
from collections.abc import Iterable, Iterator

from controlplane.catalog.machine_types import vcpus_of
from controlplane.clouds.gke.settings import GkeConfig
from controlplane.clouds.interface import PROJECT, Needs, PoolPlan, Quota, QuotaKey
from controlplane.clouds.outcomes import QuotaExceeded, Shortfall

SPOT = "PREEMPTIBLE_"
_GPUS = {
    "T4": "NVIDIA_T4_GPUS",
    "L4": "NVIDIA_L4_GPUS",
    "V100": "NVIDIA_V100_GPUS",
    "A100-40": "NVIDIA_A100_GPUS",
    "A100-80": "NVIDIA_A100_80GB_GPUS",
    "H100": "NVIDIA_H100_GPUS",
}
_CPUS = {"e2": "CPUS", "f1": "CPUS", "g1": "CPUS", "n1": "CPUS", "g2": "CPUS"} | {
    series: f"{series.upper()}_CPUS" for series in ("a2", "c2", "c2d", "c3", "n2", "n2d", "t2d")
}
"""CPU metrics by machine series. Not verified at Google: G2 machines count against `CPUS`."""
_DISKS = {"pd-standard": "DISKS_TOTAL_GB", "pd-balanced": "SSD_TOTAL_GB", "pd-ssd": "SSD_TOTAL_GB"}
_AMOUNT = r"(\d{1,15}(?:\.\d*)?)"
_SHORT = re.compile(
    r"insufficient (regional|project) quota to satisfy request: resource \"(\w+)\": "
    rf"request requires '{_AMOUNT}' and is short '{_AMOUNT}'\. "
    rf"project has a quota of '{_AMOUNT}' with '{_AMOUNT}' available",
    re.IGNORECASE,
)
_INSIDE = re.compile(
    r"Quota '[^']+' exceeded\.( Limit: \S+ (?:in (?:region|zone) [a-z0-9-]+|globally)\.)?", re.IGNORECASE
)


def needs(plan: PoolPlan, quotas: Iterable[Quota], config: GkeConfig) -> Needs:
    """What one node needs of these quotas.

    A spot quota of 0 means that none was granted: spot nodes then count against the on-demand quota.
    """
    kind, region, limits = plan.kind, plan.kind.region, {quota.key: quota.limit for quota in quotas}

    def metric(ordinary: str, spot: str) -> QuotaKey:
        own = QuotaKey(region, spot)
        return own if kind.spot and limits.get(own, 0) > 0 else QuotaKey(region, ordinary)

    found = {QuotaKey(region, "INSTANCES"): 1}
    if not config.nodes.private:
        found[QuotaKey(region, "IN_USE_ADDRESSES")] = 1
    vcpus, series = vcpus_of(kind.machine_type), kind.machine_type.partition("-")[0]
    if vcpus:
        found[QuotaKey(PROJECT, "CPUS_ALL_REGIONS")] = vcpus
    if vcpus and series in _CPUS:
        found[metric(_CPUS[series], f"{SPOT}CPUS")] = vcpus
    disk_type, disk_gb = config.disk_of(plan.name)
    if disk_type in _DISKS:
        found[QuotaKey(region, _DISKS[disk_type])] = disk_gb
    if kind.accelerator:
        found[QuotaKey(PROJECT, "GPUS_ALL_REGIONS")] = kind.accelerators
    if kind.accelerator in _GPUS:
        gpus = _GPUS[kind.accelerator]
        found[metric(gpus, f"{SPOT}{gpus}")] = kind.accelerators
    return {key: amount for key, amount in found.items() if key in limits and amount}


def quotas_page(project: str) -> str:
    return f"https://console.cloud.google.com/iam-admin/quotas?project={project}"


def exceeded(project: str, said: str) -> QuotaExceeded:
    """The outcome of Google's text: the quotas that are too small, and where to ask for more."""
    found = list(_shortfalls(said))
    gist = "; ".join(text for text, _ in found) or _inside(said)
    return QuotaExceeded(with_page(gist, project), tuple(short for _, short in found))


def with_page(text: str, project: str) -> str:
    """The text with the page on which a person requests more quota."""
    page = quotas_page(project)
    return text if page in text else f"{text.rstrip('.')}. Ask for more at {page}"


def too_small(short: Shortfall, limit: float) -> str:
    where = "of the region" if short.is_regional else "of the project"
    amounts = f"{short.requested:g} more requested, {short.available:g} of {limit:g} available"
    return f"quota {short.metric} {where} is too small: {amounts}"


def _shortfalls(said: str) -> Iterator[tuple[str, Shortfall]]:
    for scope, metric, required, _, limit, available in _SHORT.findall(said):
        short = Shortfall(metric, scope.lower() == "regional", float(required), float(available))
        yield too_small(short, float(limit)), short


def _inside(said: str) -> str:
    """Compute's message, which GKE puts inside a longer text; the whole text if it is not found."""
    found = _INSIDE.search(said)
    return found[0] if found is not None else said
