"""What the master's API tells of a job's ledger: `GET /v1/jobs/<job>/cost`.

Money is in millionths of a dollar: whole numbers, which every reader of JSON keeps exact. Parts add up to their whole.
"""

from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import Counted, Duration, JobName, UnixSeconds
from messages.measured import MeasuredProfile

Foretold = Annotated[int, Meta(ge=0)]
"""Whatever comes out, however far away the end is."""


class CostLine(Struct, frozen=True):
    """Machines of one kind in one zone."""

    region: str
    zone: str
    machine_type: str
    accelerator: str
    """Empty where there is none."""
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
    """At the price that a step has had so far."""

    steps: Counted
    """In all."""
    micro_usd: Foretold
    """When they are done."""
    remaining_micro_usd: Foretold
    remaining_s: float | None
    remaining_steps: Counted


class CostView(Struct, frozen=True, kw_only=True):
    job: JobName
    micro_usd: Counted
    """Nodes and egress."""
    nodes_micro_usd: Counted
    egress_micro_usd: Counted
    micro_usd_per_hour: Counted
    """Of the machines that are there now."""
    machines: Counted
    node_s: Duration
    by_doing: dict[str, Counted]
    """Of the nodes' cost: `working`, and what was wasted: `starting`, `recovering`, `idle`."""
    by_region: dict[str, Counted] = field(default_factory=dict)
    by_accelerator: dict[str, Counted] = field(default_factory=dict)
    on_demand_micro_usd: Counted = 0
    """What the same time of the same machines costs on demand."""
    steps: Counted = 0
    samples: Counted = 0
    micro_usd_per_1000_steps: Counted | None = None
    forecast: ForecastView | None = None
    lines: tuple[CostLine, ...] = ()
    egress: tuple[EgressLine, ...] = ()
    by_hour: tuple[tuple[UnixSeconds, Counted], ...] = ()
    """The last two days: the beginning of each hour, and what the nodes cost in it."""
    unpriced_node_s: Duration = 0.0
    """Of which no price is known: it counts as free."""
    since: UnixSeconds = 0.0
    until: UnixSeconds = 0.0
    """When the machines were last looked at; 0 if nobody has."""
    budget_micro_usd: Counted | None = None
    """What it may cost in all; None if nothing limits it."""
    paused: str = ""
    """Why, if it has reached its budget and waits for more."""
    measured: MeasuredProfile | None = None
    """What its steps need, where its script tells it: egress is counted from it."""
    note: str = ""
    """What a reader should know first."""
    ended: bool = False
    """The job, so that no more steps will follow."""
