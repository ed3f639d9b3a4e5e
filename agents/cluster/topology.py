"""Observations of workers and nodes for the master, and which of their changes are important."""

from msgspec import structs

from agents.cluster.state import ClusterState, Gone, Node, Place, Rules
from messages.clusters import NodeObservation, Presence, StartFailure, WorkerObservation
from messages.workers import WorkerStatus


def what_matters(status: WorkerStatus) -> WorkerStatus:
    """Returns a status without what changes in every heartbeat. A notice counts when it comes, not its remaining time;
    of the steps only the first counts."""
    noticed = None if status.notice_s is None else 0.0
    return structs.replace(status, seq=0, step=None if status.step is None else 0, notice_s=noticed)


def presence(place: Place) -> Presence:
    if place.status is None:
        return Presence.STARTING
    return Presence.SILENT if place.silent else Presence.ALIVE


def is_listed(place: Place) -> bool:
    """True if the place is reported. A restored place is not, until this incarnation hears its worker."""
    restored_unheard = place.status is None and place.worker is not None
    return place.left_at_s is None and not restored_unheard


def notice_left_s(rules: Rules, notice_at_s: float, now_s: float) -> float:
    """Returns the part of a notice that a worker gets."""
    left_s, for_node_s = max(0.0, notice_at_s - now_s), rules.notice_for_node_s
    return round(min(left_s, max(for_node_s, left_s - for_node_s)), 3)


def observation(state: ClusterState, place: Place, now_s: float) -> WorkerObservation:
    silent_s = now_s - place.silent_since_s(state.link.since_s) if place.status is not None else 0.0
    why = f"being ended: {place.ending.why}" if place.ending is not None else place.observed.waits_for
    status = _with_zone(state, place, _with_notice(state, place, now_s))
    failure = _failure(place, now_s)
    return WorkerObservation(place.id, place.job, presence(place), round(max(0.0, silent_s), 3), why, status, failure)


def _failure(place: Place, now_s: float) -> StartFailure | None:
    failure = place.observed.failure
    if failure is None or place.ending is not None:
        return None
    return structs.replace(failure, for_s=round(max(0.0, now_s - place.observed.failing_since_s), 3))


def _with_notice(state: ClusterState, place: Place, now_s: float) -> WorkerStatus | None:
    """Adds a notice that the controller observed to the worker's status, in case the first message is lost."""
    status = place.status
    if status is None or status.notice_s is not None or place.notice is None or place.ending is not None:
        return status
    return structs.replace(status, notice_s=notice_left_s(state.rules, place.notice.at_s, now_s))


def _with_zone(state: ClusterState, place: Place, status: WorkerStatus | None) -> WorkerStatus | None:
    """Adds the zone of the node, which a worker in a pod does not know."""
    node = state.nodes.get(place.observed.node)
    if status is None or status.zone or node is None or not node.observation.zone:
        return status
    return structs.replace(status, zone=node.observation.zone)


def node_observation(node: Node, now_s: float) -> NodeObservation:
    if node.notice_at_s is None:
        return node.observation
    return structs.replace(node.observation, notice_s=round(max(0.0, node.notice_at_s - now_s), 3))


def is_reported(state: ClusterState, gone: Gone, now_s: float) -> bool:
    """True if the end of this worker is still reported. The record may contain it for longer."""
    return now_s - gone.at_s < state.rules.gone_for_s


def gone_observation(gone: Gone) -> WorkerObservation:
    return WorkerObservation(gone.worker, gone.job, Presence.GONE, why=gone.why, status=gone.status)
