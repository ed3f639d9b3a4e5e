"""When a cluster's protection from node upgrades is renewed, for how long, and what people learn of it. Pure.

A cloud may refuse a protection that is too long, since it ends with the support of a cluster's version at the latest:
then one of half the length is requested. If the cloud refuses all, an event says so; an upgrade costs ranks, but
breaks nothing.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from controlplane.clouds.interface import ClusterInfo, ClusterPlan
from controlplane.clouds.outcomes import Done, Outcome, Refused, reason_of
from messages.events import FLEET, Event
from messages.ids import ClusterName

LOOK_S = 3600.0
"""Seconds between two looks while everything is protected."""
RENEWED_SHARE = 1 / 3
"""Part of the wanted time that is left when a protection is renewed."""
SHORTEST_S = 14 * 86_400.0
"""Seconds of the shortest protection that is requested."""


@dataclass(frozen=True, slots=True)
class Protect:
    """A protection to request from the cloud."""

    cluster: ClusterName
    now: float
    """Unix seconds when the renewal began."""
    protected_until: float
    """Unix seconds at which the present protection ends; `now` without one."""
    length_s: float

    @property
    def until(self) -> float:
        return self.now + self.length_s


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing more to request for a cluster now."""

    is_protected: bool
    """For longer than until the next look."""
    event: Event | None = None


def first_step(plan: ClusterPlan, cluster: ClusterInfo | None, now: float) -> Protect | Settled:
    """`cluster`: as the cloud lists it; None for one that is not there."""
    if cluster is None or not cluster.ready:
        return Settled(is_protected=False)
    until = cluster.protected_until or now
    if until - now >= plan.protect_s * RENEWED_SHARE:
        return Settled(is_protected=True)
    return Protect(plan.name, now, until, plan.protect_s)


def next_step(requested: Protect, outcome: Outcome) -> Protect | Settled:
    cluster, until = requested.cluster, requested.protected_until
    if isinstance(outcome, Done):
        text = f"cluster {cluster}: no node upgrades until {_day(requested.until)}"
        return Settled(is_protected=True, event=_event("upgrades_excluded", cluster, text))
    shorter = replace(requested, length_s=requested.length_s / 2)
    if isinstance(outcome, Refused) and shorter.length_s >= SHORTEST_S and shorter.until > until:
        return shorter
    until_when = f"are only excluded until {_day(until)}" if until > requested.now else "may come at any time"
    why = f"the cloud did not exclude them: {reason_of(outcome)}"
    event = _event("upgrades_allowed", cluster, f"cluster {cluster}: node upgrades {until_when}", why)
    return Settled(is_protected=until > requested.now + 2 * LOOK_S, event=event)


def _event(kind: str, cluster: ClusterName, text: str, why: str = "") -> Event:
    return Event(FLEET, kind, text, why, {"cluster": cluster})


def _day(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).date().isoformat()
