"""Rules for the protection from node upgrades: when to renew it, for how long, and what to announce. Pure.

A cloud may refuse a protection that outlasts the support of a cluster's version; then half the length is requested.
If the cloud refuses all lengths, an event reports it; an upgrade costs ranks, but breaks nothing.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from controlplane.clouds.interface import ClusterInfo, ClusterPlan
from controlplane.clouds.outcomes import Done, Outcome, Refused, reason_of
from messages.events import FLEET, Event
from messages.ids import ClusterName

LOOK_S = 3600.0
"""Seconds between two looks while all clusters are protected."""
RENEWED_SHARE = 1 / 3
"""The part of the requested time that is left when a protection is renewed."""
SHORTEST_S = 14 * 86_400.0
"""Seconds of the shortest protection to request."""


@dataclass(frozen=True, slots=True)
class Protect:
    """A protection to request from the cloud."""

    cluster: ClusterName
    now: float
    """Unix seconds when the renewal began."""
    protected_until: float
    """Unix seconds at which the current protection ends; `now` without one."""
    length_s: float

    @property
    def until(self) -> float:
        return self.now + self.length_s


@dataclass(frozen=True, slots=True)
class Settled:
    """The state in which there is nothing more to request for a cluster now."""

    is_protected: bool
    """True if the cluster is protected until after the next look."""
    event: Event | None = None


def first_step(plan: ClusterPlan, cluster: ClusterInfo | None, now: float) -> Protect | Settled:
    """The first step of a renewal. `cluster`: the cloud's listing of the cluster; None if it does not exist."""
    if cluster is None or not cluster.ready:
        return Settled(is_protected=False)
    until = cluster.protected_until or now
    if until - now >= plan.protect_s * RENEWED_SHARE:
        return Settled(is_protected=True)
    return Protect(plan.name, now, until, plan.protect_s)


def next_step(requested: Protect, outcome: Outcome) -> Protect | Settled:
    cluster, until = requested.cluster, requested.protected_until
    if isinstance(outcome, Done):
        text = upgrades_excluded(cluster, requested.until)
        return Settled(is_protected=True, event=_event("upgrades_excluded", cluster, text))
    shorter = replace(requested, length_s=requested.length_s / 2)
    if isinstance(outcome, Refused) and shorter.length_s >= SHORTEST_S and shorter.until > until:
        return shorter
    why = f"the cloud did not exclude upgrades: {reason_of(outcome)}"
    text = upgrades_allowed(cluster, until if until > requested.now else None)
    event = _event("upgrades_allowed", cluster, text, why)
    return Settled(is_protected=until > requested.now + 2 * LOOK_S, event=event)


def upgrades_excluded(cluster: ClusterName, until: float) -> str:
    return f"cluster {cluster}: no node upgrades until {_day(until)}"


def upgrades_allowed(cluster: ClusterName, excluded_until: float | None) -> str:
    if excluded_until is None:
        return f"cluster {cluster}: node upgrades may start at any time"
    return f"cluster {cluster}: node upgrades are only excluded until {_day(excluded_until)}"


def _event(kind: str, cluster: ClusterName, text: str, why: str = "") -> Event:
    return Event(FLEET, kind, text, why, {"cluster": cluster})


def _day(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).date().isoformat()
