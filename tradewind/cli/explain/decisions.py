"""From what happened to what was decided. Pure.

Workers come and go between two worlds: who did is told with the world that was made of the rest.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from messages.api import EventLine
from messages.events import LOSER_FIELD
from messages.jobs import Scalar

SUBMITTED = "job_submitted"
WORLD = "world_decided"
LEAVING = "leaving"
CAME = "worker_joined"
LEFT = "worker_gone"
NOTICED = "worker_noticed"


class About(StrEnum):
    PLACEMENT = "placement"
    POOLS = "pools"
    SHORTAGE = "shortage"
    WORLD = "world"
    BUDGET = "budget"
    JOB = "job"


ABOUT: dict[str, About] = {
    **dict.fromkeys(("planned", "capacity_ignored", "list_prices_used", "market_prices_used"), About.PLACEMENT),
    **dict.fromkeys(
        ("pool_found", "pool_created", "pool_raised", "pool_lowered", "pool_deleted", "nodes_removed"), About.POOLS
    ),
    **dict.fromkeys(("capacity_reached", "capacity_gone", "node_underused", "node_given_back"), About.POOLS),
    **dict.fromkeys(("zone_stocked_out", "quota_exceeded", "cloud_refused", "listing_failed"), About.SHORTAGE),
    **dict.fromkeys(("starts_failed", "starts_work"), About.SHORTAGE),
    **dict.fromkeys(("pool_trouble", "cluster_refused", "share_moved", "shares_renewed"), About.SHORTAGE),
    **dict.fromkeys((WORLD, "world_halted", "job_waiting"), About.WORLD),
    **dict.fromkeys(("budget_raised", "job_paused", "job_continued", "on_demand_off", "on_demand_on"), About.BUDGET),
    **dict.fromkeys(
        (SUBMITTED, "job_scaled", "job_reloading", "job_succeeded", "job_failed", "job_stopped"), About.JOB
    ),
}
"""The kinds of events that tell of a decision."""


class Loser(Struct, frozen=True):
    placement: str
    why_not: str


class Explained(Struct, frozen=True):
    at: float
    """Unix seconds."""
    about: About
    kind: str
    text: str
    why: str
    fields: dict[str, Scalar | None]
    """Without those that are told apart."""
    came: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    """Workers, and why they went, or go when a prepared world takes over."""
    lost: tuple[Loser, ...] = ()
    """Placements that lost, the best of them first."""


def decisions(events: Iterable[EventLine]) -> Iterator[Explained]:
    """In the order of the events, of the newest job of this name."""
    made: list[Explained] = []
    came: dict[str, None] = {}
    left: dict[str, str] = {}
    noticed: dict[str, str] = {}
    told: set[str] = set()
    """Who leaves with a world that was prepared without them: that they are gone later is no news."""
    for event in events:
        if event.kind == SUBMITTED:
            made, came, left, noticed, told = [], {}, {}, {}, set()
        worker = str(event.fields.get("worker") or "")
        if event.kind == CAME:
            came[worker] = None
        elif event.kind == LEFT and worker in came:
            del came[worker]
        elif event.kind == NOTICED:
            noticed[worker] = event.why
        elif event.kind == LEFT and worker not in told:
            left[worker] = event.why
        about = ABOUT.get(event.kind)
        if about is None:
            continue
        if event.kind == WORLD:
            leaving = [each for each in str(event.fields.get(LEAVING) or "").split(", ") if each and each not in told]
            left |= {each: noticed.get(each, "") for each in leaving}
            told.update(leaving)
            made.append(_explained(event, about, tuple(came), tuple(left.items())))
            came, left = {}, {}
        else:
            made.append(_explained(event, about))
    return iter(made)


def _explained(
    event: EventLine, about: About, came: tuple[str, ...] = (), left: tuple[tuple[str, str], ...] = ()
) -> Explained:
    numbered = sorted((int(key[len(LOSER_FIELD) :]), key) for key in event.fields if _is_loser(key))
    lost = tuple(_loser(str(event.fields[key])) for _, key in numbered)
    fields = {key: value for key, value in event.fields.items() if key != LEAVING and not _is_loser(key)}
    return Explained(event.at, about, event.kind, event.text, event.why, fields, came, left, lost)


def _is_loser(key: str) -> bool:
    return key.startswith(LOSER_FIELD) and key[len(LOSER_FIELD) :].isdecimal()


def _loser(text: str) -> Loser:
    placement, _, why_not = text.partition(": ")
    return Loser(placement, why_not)
