"""Costs of a job in the master's API: `GET /v1/jobs/<job>/cost`.

Money is in millionths of a dollar: whole numbers, which JSON readers represent exactly. Parts add up to their whole.
"""

from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import Counted, Duration, JobName, UnixSeconds
from messages.measured import MeasuredProfile

Forecast = Annotated[int, Meta(ge=0)]
"""A forecast without an upper bound, because the end of a job may be far away."""


class CostLine(Struct, frozen=True):
    """Costs of machines of one kind in one zone."""

    region: str
    zone: str
    machine_type: str
    accelerator: str
    """Empty if the machines have none."""
    spot: bool
    node_s: Duration
    micro_usd: Counted
    working_micro_usd: Counted


class EgressLine(Struct, frozen=True):
    sender: str
    receiver: str
    sent_bytes: Counted
    micro_usd: Counted


class ForecastView(Struct, frozen=True):
    """The forecast, at the price of a step so far."""

    steps: Counted
    """All steps of the job."""
    micro_usd: Forecast
    """The cost after all steps."""
    remaining_micro_usd: Forecast
    remaining_s: float | None
    remaining_steps: Counted


class CostView(Struct, frozen=True, kw_only=True):
    job: JobName
    micro_usd: Counted
    """Cost of nodes and egress."""
    nodes_micro_usd: Counted
    egress_micro_usd: Counted
    micro_usd_per_hour: Counted
    """Cost of the current machines."""
    machines: Counted
    node_s: Duration
    by_activity: dict[str, Counted]
    """The nodes' cost by activity: `working`, and the wasted `starting`, `recovering` and `idle`."""
    by_region: dict[str, Counted] = field(default_factory=dict)
    by_accelerator: dict[str, Counted] = field(default_factory=dict)
    on_demand_micro_usd: Counted = 0
    """The cost of the same time of the same machines on demand."""
    steps: Counted = 0
    samples: Counted = 0
    micro_usd_per_1000_steps: Counted | None = None
    forecast: ForecastView | None = None
    lines: tuple[CostLine, ...] = ()
    egress: tuple[EgressLine, ...] = ()
    by_hour: tuple[tuple[UnixSeconds, Counted], ...] = ()
    """The start of each hour of the last two days, and the nodes' cost in it."""
    unpriced_node_s: Duration = 0.0
    """Node seconds without a known price, which count as free."""
    since: UnixSeconds = 0.0
    until: UnixSeconds = 0.0
    """When the machines were last listed; 0 if never."""
    budget_micro_usd: Counted | None = None
    """The whole budget; None if unlimited."""
    paused: str = ""
    """Why the job is paused; empty if it is not."""
    measured: MeasuredProfile | None = None
    """What the job's steps need, as measured (SDK). Egress is computed from it."""
    note: str = ""
    """The most important remark for a reader."""
    ended: bool = False
    """True if the job has ended."""
