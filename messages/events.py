"""Events for people: a text, and why."""

from enum import StrEnum

from msgspec import Struct, field

from messages.jobs import Scalar

FLEET = "fleet"
"""The scope of events that belong to no job."""
LOSER_FIELD = "lost_"
"""Prefix of fields that describe rejected plans; a number follows, 1 for the best of them."""


class EventKind(StrEnum):
    """Kinds of events that programs recognize. `Event.kind` may have other values, which are for people only."""

    JOB_SUBMITTED = "job_submitted"
    JOB_SCALED = "job_scaled"
    JOB_RELOADING = "job_reloading"
    JOB_WAITING = "job_waiting"
    JOB_SUCCEEDED = "job_succeeded"
    JOB_FAILED = "job_failed"
    JOB_STOPPED = "job_stopped"

    WORLD_DECIDED = "world_decided"
    WORLD_HALTED = "world_halted"

    WORKER_JOINED = "worker_joined"
    WORKER_NOTICED = "worker_noticed"
    WORKER_GONE = "worker_gone"
    TRAINER_FAILED = "trainer_failed"

    PLANNED = "planned"
    CAPACITY_IGNORED = "capacity_ignored"
    LIST_PRICES_USED = "list_prices_used"
    MARKET_PRICES_USED = "market_prices_used"

    POOL_FOUND = "pool_found"
    POOL_CREATED = "pool_created"
    POOL_RAISED = "pool_raised"
    POOL_LOWERED = "pool_lowered"
    POOL_DELETED = "pool_deleted"
    POOL_TROUBLE = "pool_trouble"
    NODES_REMOVED = "nodes_removed"
    NODE_UNDERUSED = "node_underused"
    NODE_GIVEN_BACK = "node_given_back"
    CAPACITY_REACHED = "capacity_reached"
    CAPACITY_GONE = "capacity_gone"

    ZONE_STOCKED_OUT = "zone_stocked_out"
    QUOTA_EXCEEDED = "quota_exceeded"
    CLOUD_REFUSED = "cloud_refused"
    CLUSTER_REFUSED = "cluster_refused"
    LISTING_FAILED = "listing_failed"
    STARTS_FAILED = "starts_failed"
    STARTS_WORK = "starts_work"
    SHARE_MOVED = "share_moved"
    SHARES_RENEWED = "shares_renewed"

    BUDGET_RAISED = "budget_raised"
    JOB_PAUSED = "job_paused"
    JOB_CONTINUED = "job_continued"
    ON_DEMAND_OFF = "on_demand_off"
    ON_DEMAND_ON = "on_demand_on"


JOB_ENDS: dict[str, str] = {
    EventKind.JOB_SUCCEEDED: "succeeded",
    EventKind.JOB_FAILED: "failed",
    EventKind.JOB_STOPPED: "stopped",
}
"""The kinds of a job's last event, and the phase for each."""


class Event(Struct, frozen=True, omit_defaults=True):
    scope: str
    kind: str
    text: str
    why: str = ""
    fields: dict[str, Scalar | None] = field(default_factory=dict)
