"""Settings of the cloud. Each is a variable `TRADEWIND_SIMULATOR_<NAME>` and a flag.

Delays are seconds of the cloud's own time, of which `speed` pass in a real second. Durations that programs on the nodes
see are in real time: the notice and the lifetime of a token.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from runtime.errors import UserError
from simulator.cloud.model.names import is_location, is_zone
from simulator.cloud.model.quotas import metrics_named, scope_of
from simulator.cloud.model.state import Rules
from simulator.market.feed import Weather
from simulator.market.markets import Lifetimes, Market, NoticeSeconds
from simulator.market.traces import known_accelerator

PREFIX = "TRADEWIND_SIMULATOR_"

Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, Meta(ge=0, le=1_000_000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
_REGION = re.compile(r"^([a-z]+-[a-z]+\d+)=(https?://.+)$")
_QUOTA = re.compile(r"^(?:([a-z]+-[a-z]+\d+):)?([A-Za-z0-9_-]+)=(\d+)$")


class CloudSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    grpc_port: Port = 8900
    """GKE's API."""
    http_port: Port = 8901
    """Compute's API, the token endpoint and the control endpoint."""
    public_url: str = ""
    """URL at which others reach the HTTP port, if not host and port; credentials contain it."""
    projects: str = "tradewind"
    """Comma-separated names. Requests for other projects are refused."""
    regions: str = ""
    """Comma-separated regions, such as `us-central1=http://host:port`."""
    region_poll_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    """Real seconds between two polls of a region."""

    auth: bool = True
    """Require a token for each call."""
    secret: str = "simulated"
    """Secret that signs the tokens; regions need the same one."""
    token_s: Annotated[float, Meta(gt=0, le=86_400)] = 3600.0
    """Lifetime of a token in real seconds."""
    write_credentials: str = ""
    """File for a service account's key, which Google's libraries can read. An existing file keeps its key."""

    seed: int = 0
    speed: Annotated[float, Meta(gt=0, le=10_000)] = 1.0
    operation_s: Seconds = 20.0
    cluster_s: Seconds = 240.0
    boot_s: Seconds = 60.0
    recreate_s: Seconds = 10.0
    retry_s: Seconds = 30.0
    stockout_s: Seconds = 2100.0
    group_s: Seconds = 5.0
    sticky_error_s: Seconds = 86_400.0
    give_up_s: Seconds = 2100.0
    forget_s: Seconds = 10.0
    notice_s: NoticeSeconds = 30.0
    """Real seconds, whatever the speed."""
    silent_share: Share = 0.0
    maintenance_s: Seconds = 3600.0
    """Real seconds, whatever the speed."""
    repair_s: Seconds = 600.0
    drain_s: Seconds = 3600.0
    upgrade_every_s: Annotated[float, Meta(ge=0, le=100_000_000)] = 2_592_000.0
    """Age of the version of a pool's nodes at which GKE upgrades them; 0: never by itself."""

    default_capacity: Count = 64
    default_quota: Count = 64
    quotas: str = ""
    """Comma-separated limits for every project, such as `us-central1:SSD_TOTAL_GB=2000,GPUS_ALL_REGIONS=8`.

    A limit without a region applies to the whole project, or to every region.
    """
    roleless_accounts: str = ""
    """Comma-separated service accounts of nodes without the roles that GKE needs; also for regions in this process."""
    operations_at_once: Annotated[int, Meta(ge=1, le=1000)] = 5
    calls_per_minute: Count = 3000
    """Most calls per minute of each project; 0: no limit."""

    trace: str = ""
    """Comma-separated files, or `zone/accelerator=file` for a trace that does not name its market."""
    generate: bool = False
    """Generate capacity and prices from the seed for markets without a trace."""
    accelerators: str = "nvidia-l4"
    """Comma-separated accelerators of the generated markets."""
    drift_every_s: Annotated[float, Meta(gt=0)] = 600.0
    shortage_every_s: Annotated[float, Meta(gt=0)] = 21_600.0
    shortage_s: Annotated[float, Meta(gt=0)] = 1200.0
    lifetime_s: Seconds = 0.0
    """Mean lifetime of a spot node; 0: no limit."""
    lifetime_shape: Annotated[float, Meta(ge=0.2, le=10)] = 0.7
    lifetime_cap_s: Seconds = 0.0
    """Longest lifetime of a spot node; 0: no limit."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    path: Path
    market: Market | None


def rules_of(settings: CloudSettings) -> Rules:
    speed = settings.speed
    lifetimes = Lifetimes(
        settings.lifetime_s / speed, settings.lifetime_shape, (settings.lifetime_cap_s or math.inf) / speed
    )
    return Rules(
        seed=settings.seed,
        regions=tuple(region_urls(settings)),
        operation_s=settings.operation_s / speed,
        cluster_s=settings.cluster_s / speed,
        boot_s=settings.boot_s / speed,
        recreate_s=settings.recreate_s / speed,
        retry_s=max(0.01, settings.retry_s / speed),
        stockout_s=settings.stockout_s / speed,
        group_s=settings.group_s / speed,
        sticky_error_s=settings.sticky_error_s / speed,
        give_up_s=settings.give_up_s / speed,
        forget_s=settings.forget_s / speed,
        notice_s=settings.notice_s,
        silent_share=settings.silent_share,
        maintenance_s=settings.maintenance_s,
        repair_s=settings.repair_s / speed,
        drain_s=settings.drain_s / speed,
        upgrade_every_s=settings.upgrade_every_s / speed,
        default_capacity=settings.default_capacity,
        default_quota=settings.default_quota,
        operations_at_once=settings.operations_at_once,
        lifetimes=lifetimes if settings.lifetime_s else None,
    )


def weather_of(settings: CloudSettings) -> Weather:
    return Weather(settings.default_capacity, settings.drift_every_s, settings.shortage_every_s, settings.shortage_s)


def project_names(settings: CloudSettings) -> tuple[str, ...]:
    names = tuple(items(settings.projects))
    if not names:
        raise UserError("The cloud has no project.", "--projects my-project")
    return names


def region_urls(settings: CloudSettings) -> dict[str, str]:
    found = {}
    for item in items(settings.regions):
        match = _REGION.match(item)
        if match is None:
            raise UserError(f"{item!r} is not NAME=URL of a region.", "--region us-central1=http://127.0.0.1:8910")
        found[match[1]] = match[2].rstrip("/")
    if not found:
        raise UserError("The cloud has no region.", "--region us-central1=http://127.0.0.1:8910")
    return found


def quota_limits(settings: CloudSettings) -> dict[tuple[str, str, str], int]:
    """Configured limits, by project, scope and metric."""
    found: dict[tuple[str, str, str], int] = {}
    for item in items(settings.quotas):
        match = _QUOTA.match(item)
        metrics = metrics_named(match[2]) if match else ()
        if match is None or not metrics:
            raise UserError(f"{item!r} is not a quota.", "--quotas us-central1:PREEMPTIBLE_NVIDIA_L4_GPUS=8")
        regions = [match[1]] if match[1] else [*region_urls(settings)]
        for project, region, metric in product(project_names(settings), regions, metrics):
            found[project, scope_of(metric, region), metric] = int(match[3])
    return found


def trace_files(settings: CloudSettings) -> Iterator[TraceFile]:
    for item in items(settings.trace):
        named, separator, path = item.partition("=")
        zone, slash, accelerator = named.partition("/")
        if separator and slash and is_location(zone):
            yield TraceFile(Path(path), Market(zone, known_accelerator(accelerator, "--trace")))
        else:
            yield TraceFile(Path(item), None)


def markets_of(settings: CloudSettings, regions: Sequence[str]) -> list[Market]:
    """The generated markets: three zones of each region."""
    names = [known_accelerator(name, "--accelerators") for name in items(settings.accelerators)]
    zones = [f"{region}-{letter}" for region in regions for letter in "abc"]
    return [Market(zone, name) for zone, name in product(zones, names) if is_zone(zone)]


def items(text: str) -> Iterator[str]:
    """The items of a comma-separated list."""
    return (item.strip() for item in text.split(",") if item.strip())
