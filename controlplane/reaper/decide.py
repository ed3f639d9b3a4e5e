"""The reaper's core: decides after each look what to remove and what to announce. Pure.

It removes less than a person may: pools of unknown or ended jobs, and clusters whose creation failed. It removes each
only after two looks in a row found it, and pools only if they were requested over this bus: another bus has the records
of their jobs, or had them. It announces the rest.
"""

from dataclasses import dataclass, replace
from typing import assert_never

from controlplane.clouds.interface import ClusterInfo, MachineInfo, PoolInfo
from controlplane.reaper.findings import ELSEWHERE, Clusters, FleetScope, Found, sort_out
from controlplane.reaper.inventory import Inventory, Key, Resource, key_of, name_of
from controlplane.reaper.state import Claim, Reaping, Records
from messages.events import FLEET, Event
from messages.ids import JobName
from messages.jobs import Scalar
from runtime.decision import Decision

PERSON_HINT = "`tradewind reap` shows it and can remove it"
MACHINE_HINT = "it is in no pool: delete it by hand, as `tradewind reap` shows"


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at the cloud and the records; the inventory is older than the records (see `findings`)."""

    at: float
    """Unix seconds."""
    inventory: Inventory
    records: Records
    at_work: frozenset[JobName]
    """Jobs of the inventory for which an allocator is at work."""


@dataclass(frozen=True, slots=True)
class LookFailed:
    """The cloud could not be listed: earlier suspects must be found twice again before they are removed."""


@dataclass(frozen=True, slots=True)
class RemovalEnded:
    found: Found
    trouble: str
    """Why the resource could not be removed; empty if it is gone."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Ends with RemovalEnded, unless the job is at work again or this master no longer leads."""

    found: Found


@dataclass(frozen=True, slots=True)
class Announce:
    event: Event


ReaperEvent = Looked | LookFailed | RemovalEnded
ReaperEffect = Remove | Announce
Decided = Decision[Reaping, ReaperEffect]


def decide(state: Reaping, event: ReaperEvent, fleet: FleetScope) -> Decided:
    match event:
        case Looked():
            return _after_look(state, event, fleet)
        case LookFailed():
            return Decision(replace(state, suspects=frozenset()), why="the cloud or the records could not be read")
        case RemovalEnded(found, ""):
            return Decision(state, (_announce("reaped", f"{name_of(found.resource)} was removed", found.why, found),))
        case RemovalEnded(found, trouble):
            text = f"{name_of(found.resource)} belongs to no live job and could not be removed ({found.why})"
            return _once(state, found, trouble, _announce("reap_failed", text, trouble, found))
        case _:
            assert_never(event)


def _after_look(state: Reaping, event: Looked, fleet: FleetScope) -> Decided:
    claims = {**event.records.claims, **_unsettled(event)}
    found = sort_out(event.inventory, claims, fleet, event.at, Clusters.FAILED, event.records.bus)
    elsewhere = [each for each in found.left if each.why == ELSEWHERE]
    suspects = frozenset(key_of(each.resource) for each in (*found.orphans, *elsewhere))
    announced = {key: why for key, why in state.announced.items() if key in suspects}
    decided: Decided = Decision(Reaping(suspects, announced), why=f"{len(found.orphans)} resources have no owner")
    for each in elsewhere:
        if key_of(each.resource) in state.suspects:
            text = f"{name_of(each.resource)} belongs to no known job and is not removed"
            left = _announce("not_reaped", text, f"{each.why}; {PERSON_HINT}", each)
            decided = _and(decided, _once(decided.state, each, each.why, left))
    confirmed = [each for each in found.orphans if key_of(each.resource) in state.suspects]
    for each in confirmed:
        if isinstance(each.resource, MachineInfo):
            decided = _and(decided, decide(decided.state, RemovalEnded(each, MACHINE_HINT), fleet))
        else:
            decided = replace(decided, effects=(*decided.effects, Remove(each)))
    return decided


def _unsettled(event: Looked) -> dict[JobName, Claim]:
    """Claims of ended or unknown jobs whose allocator is still at work: it removes their resources itself."""
    recorded = event.records.claims
    return {job: Claim.ENDING for job in event.at_work if recorded.get(job) in (None, Claim.ENDED)}


def _and(before: Decided, after: Decided) -> Decided:
    return replace(before, state=after.state, effects=(*before.effects, *after.effects))


def _once(state: Reaping, found: Found, why: str, announcement: Announce) -> Decided:
    """Announce only if the reason differs from the last announced one."""
    key: Key = key_of(found.resource)
    if state.announced.get(key) == why:
        return Decision(state)
    return Decision(replace(state, announced={**state.announced, key: why}), (announcement,))


def _announce(kind: str, text: str, why: str, found: Found) -> Announce:
    return Announce(Event(FLEET, kind, text, why, {**_fields(found.resource), "job": found.job}))


def _fields(resource: Resource) -> dict[str, Scalar | None]:
    match resource:
        case PoolInfo():
            return {"cluster": resource.ref.cluster, "pool": resource.ref.pool, "zone": resource.kind.zone}
        case ClusterInfo():
            return {"cluster": resource.name, "location": resource.location}
        case MachineInfo():
            return {"machine": resource.name, "zone": resource.kind.zone}
        case _:
            assert_never(resource)
