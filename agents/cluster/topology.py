"""How the controller sees its workers and nodes, and which of their changes matter."""

from msgspec import structs

from agents.cluster.state import ClusterState, Gone, Node, Place, Rules
from messages.clusters import NodeSight, Presence, StartFailure, WorkerSight
from messages.workers import WorkerStatus


def what_matters(status: WorkerStatus) -> WorkerStatus:
    """All but what changes with every word: a notice matters when it comes, not while it runs down, and of the steps
    the first."""
    noticed = None if status.notice_s is None else 0.0
    return structs.replace(status, seq=0, step=None if status.step is None else 0, notice_s=noticed)


def presence(place: Place) -> Presence:
    if place.status is None:
        return Presence.STARTING
    return Presence.SILENT if place.silent else Presence.ALIVE


def is_listed(place: Place) -> bool:
    """A restored place whose worker has not spoken to this incarnation is neither claimed to live nor to start."""
    restored_unheard = place.status is None and place.worker is not None
    return place.left_at_s is None and not restored_unheard


def notice_left_s(rules: Rules, notice_at_s: float, now_s: float) -> float:
    """For a worker."""
    left_s, for_node_s = max(0.0, notice_at_s - now_s), rules.notice_for_node_s
    return round(min(left_s, max(for_node_s, left_s - for_node_s)), 3)


def sight(state: ClusterState, place: Place, now_s: float) -> WorkerSight:
    silent_s = now_s - place.silent_since_s(state.link.since_s) if place.status is not None else 0.0
    why = f"being ended: {place.ending.why}" if place.ending is not None else place.observed.waits_for
    status = _with_zone(state, place, _with_notice(state, place, now_s))
    failure = _failure(place, now_s)
    return WorkerSight(place.id, place.job, presence(place), round(max(0.0, silent_s), 3), why, status, failure)


def _failure(place: Place, now_s: float) -> StartFailure | None:
    failure = place.observed.failure
    if failure is None or place.ending is not None:
        return None
    return structs.replace(failure, for_s=round(max(0.0, now_s - place.observed.failing_since_s), 3))


def _with_notice(state: ClusterState, place: Place, now_s: float) -> WorkerStatus | None:
    """A notice that was seen from outside is repeated as if the worker had told it, in case the first word is lost."""
    status = place.status
    if status is None or status.notice_s is not None or place.notice is None or place.ending is not None:
        return status
    return structs.replace(status, notice_s=notice_left_s(state.rules, place.notice.at_s, now_s))


def _with_zone(state: ClusterState, place: Place, status: WorkerStatus | None) -> WorkerStatus | None:
    """In a pod nothing tells a worker where its node is."""
    node = state.nodes.get(place.observed.node)
    if status is None or status.zone or node is None or not node.sight.zone:
        return status
    return structs.replace(status, zone=node.sight.zone)


def node_sight(node: Node, now_s: float) -> NodeSight:
    if node.notice_at_s is None:
        return node.sight
    return structs.replace(node.sight, notice_s=round(max(0.0, node.notice_at_s - now_s), 3))


def is_told(state: ClusterState, gone: Gone, now_s: float) -> bool:
    """Keeps some that are no longer reported, because the record names them."""
    return now_s - gone.at_s < state.rules.gone_for_s


def gone_sight(gone: Gone) -> WorkerSight:
    return WorkerSight(gone.worker, gone.job, Presence.GONE, why=gone.why, status=gone.status)
