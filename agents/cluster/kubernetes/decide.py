"""The core of pods: learns what the API shows, then decides what to report, create and delete.

A place ends when its containers have ended, or when its pod or its node is no longer in the API. The core then deletes
the remaining pod object.
"""

import math
from dataclasses import replace
from typing import assert_never

from agents.cluster.events import (
    NodeGone,
    NodeSeen,
    PlaceEnded,
    PlaceFailed,
    PlaceSeen,
    PlaceStarted,
    ViewSynced,
)
from agents.cluster.kubernetes.effects import CreatePod, DeletePod, PodEffect, ReadNode, Report, StopCreating
from agents.cluster.kubernetes.events import (
    CreateRefused,
    CreateStopped,
    DeleteAnswered,
    EndRequested,
    Listed,
    NodeObserved,
    NodeRead,
    NodeVanished,
    PodCreated,
    PodEvent,
    PodSeen,
    PodVanished,
    StartRequested,
    Ticked,
)
from agents.cluster.kubernetes.observations import PodObservation, Stage
from agents.cluster.kubernetes.state import Deletion, End, EndRequest, KnownNode, Leftover, PodPlace, Pods
from runtime.decision import Decision

NEW = "its pod was just created"
NO_POD = "its pod does not exist"
ENDED_UNSEEN = "its pod ended while no cluster-controller ran"

HOSTLESS_GRACE_S = 0
"""Seconds of grace for an agent without a host: it has nothing to hand over, and treats a signal as a notice."""

Step = tuple[Pods, list[PodEffect]]


def decide(state: Pods, event: PodEvent) -> Decision[Pods, PodEffect]:
    return _reconcile(_learn(state, event), event.at_s)


def _learn(state: Pods, event: PodEvent) -> Pods:
    match event:
        case Ticked():
            return state
        case StartRequested(_, uid, job, template):
            return state.with_place(PodPlace(uid, template, job))
        case EndRequested():
            return _request_end(state, event)
        case PodSeen():
            return _see_pod(state, event)
        case PodVanished(_, pod):
            return _lose_pod(state, pod)
        case NodeObserved(_, observation, deadline):
            return _see_node(state, KnownNode(observation, deadline))
        case NodeVanished(_, node):
            return _lose_node(state, node)
        case NodeRead():
            return _end_with_node(state, event)
        case Listed():
            return _list(state)
        case PodCreated() | CreateStopped() | CreateRefused():
            return _create_answered(state, event)
        case DeleteAnswered():
            return _delete_answered(state, event)
        case _:
            assert_never(event)


def _request_end(state: Pods, event: EndRequested) -> Pods:
    place = state.places.get(event.uid, PodPlace(event.uid))
    under_way = place.deletion is not None and place.deletion.by_controller and not place.deletion.answered
    if event.uid in state.tombstones or under_way:
        return state
    request = place.end_request or EndRequest(event.grace_s, event.at_s)
    return state.with_place(replace(place, ended_by_us=True, end_request=request))


def _see_pod(state: Pods, event: PodSeen) -> Pods:
    pod = event.pod
    if pod.uid in state.tombstones:
        known = state.leftovers.get(pod.uid)
        leftover = known if known is not None and known.pod_uid == pod.pod_uid else Leftover(pod.pod_uid)
        return replace(state, leftovers={**state.leftovers, pod.uid: leftover})
    place = state.places.get(pod.uid, PodPlace(pod.uid))
    hostless_since_s = None
    if pod.stage is Stage.HOSTLESS:
        hostless_since_s = event.at_s if place.hostless_since_s is None else place.hostless_since_s
    remaining_s = None if pod.deleted_at is None else pod.deleted_at.timestamp() - event.wall_s
    return state.with_place(
        replace(
            place,
            pod=pod,
            delete_at_s=None if remaining_s is None else event.at_s + remaining_s,
            hostless_since_s=hostless_since_s,
            ended_by_us=place.ended_by_us or pod.stage is Stage.ABANDONED,
            end=End(pod.why) if pod.stage is Stage.ENDED else None,
        )
    )


def _lose_pod(state: Pods, pod: PodObservation) -> Pods:
    state = state.without_leftover(pod.uid)
    place = state.places.get(pod.uid, PodPlace(pod.uid))
    gives_reason = pod.stage in (Stage.ENDED, Stage.ABANDONED, Stage.HOSTLESS)
    why = pod.why if gives_reason else "its pod was ended" if place.ended_by_us else "its pod was deleted"
    return _end(state, replace(place, pod=None), End(why))


def _end(state: Pods, place: PodPlace, end: End) -> Pods:
    return state if place.uid in state.tombstones else state.with_place(replace(place, end=end))


def _see_node(state: Pods, node: KnownNode) -> Pods:
    name = node.observation.node
    known = state.nodes.get(name)
    if known is not None:
        node = replace(node, reported=known.reported and known.is_as(node))
    return replace(state, nodes={**state.nodes, name: node})


def _lose_node(state: Pods, name: str) -> Pods:
    nodes = {other: node for other, node in state.nodes.items() if other != name}
    return replace(
        state,
        nodes=nodes,
        vanished_nodes=(*state.vanished_nodes, name),
        nodes_to_read=(*state.nodes_to_read, name),
    )


def _end_with_node(state: Pods, event: NodeRead) -> Pods:
    """Ends the pods of a lost machine, but not those that were scheduled on a new machine of the same name."""
    for uid in event.uids:
        place = state.places.get(uid)
        if place is not None and place.pod is not None and not _is_scheduled_on(place.pod, event):
            state = _end(state, place, End(node_is_gone(event.node)))
    return state


def node_is_gone(node: str) -> str:
    return f"its node {node} is gone"


def _is_scheduled_on(pod: PodObservation, machine: NodeRead) -> bool:
    joined_at = machine.created_at
    return joined_at is not None and pod.scheduled_at is not None and pod.scheduled_at >= joined_at


def _list(state: Pods) -> Pods:
    for uid in state.expected:
        if uid not in state.places:
            state = _end(state, PodPlace(uid), End(ENDED_UNSEEN))
    used = {place.pod.node for place in state.places.values() if place.pod is not None and place.pod.node}
    return replace(state, expected=(), synced=True, nodes_to_read=tuple(sorted(used - set(state.nodes))))


def _create_answered(state: Pods, event: PodCreated | CreateStopped | CreateRefused) -> Pods:
    place = state.places.get(event.uid)
    if place is None:
        return state
    place = replace(place, creating=False, template=None)
    match event:
        case CreateRefused(_, _, why):
            return _end(state, place, End(why, refused=True))
        case PodCreated(_, uid, pod_uid) if place.pod is None and place.job is not None:
            return state.with_place(replace(place, pod=PodObservation(uid, pod_uid, place.job, Stage.WAITING, why=NEW)))
        case PodCreated() | CreateStopped():
            return state.with_place(place)
        case _:
            assert_never(event)


def _delete_answered(state: Pods, event: DeleteAnswered) -> Pods:
    leftover, place = state.leftovers.get(event.uid), state.places.get(event.uid)
    if leftover is not None and leftover.deletion is not None:
        if event.missing:
            return state.without_leftover(event.uid)
        answered = replace(leftover, deletion=replace(leftover.deletion, answered=True))
        return replace(state, leftovers={**state.leftovers, event.uid: answered})
    if place is None or place.deletion is None:
        return state
    if event.missing and place.deletion.by_controller:
        return _end(state, replace(place, pod=None), End(NO_POD))
    return state.with_place(replace(place, deletion=replace(place.deletion, answered=True)))


def _reconcile(state: Pods, now_s: float) -> Decision[Pods, PodEffect]:
    effects: list[PodEffect] = []
    for step in (_report_nodes, _report_places, _report_synced, _create, _delete_pods, _delete_leftovers):
        state, asked = step(state, now_s)
        effects.extend(asked)
    return Decision(state, tuple(effects), _why(state), min(_deadlines(state), default=None))


def _report_nodes(state: Pods, now_s: float) -> Step:
    effects: list[PodEffect] = [Report(NodeGone(now_s, name)) for name in state.vanished_nodes]
    for name in state.nodes_to_read:
        uids = tuple(place.uid for place in state.places.values() if place.pod is not None and place.pod.node == name)
        if uids:
            effects.append(ReadNode(name, uids))
    new = {name: replace(node, reported=True) for name, node in state.nodes.items() if not node.reported}
    effects += [Report(NodeSeen(now_s, node.observation)) for node in new.values()]
    if not new and not state.vanished_nodes and not state.nodes_to_read:
        return state, []
    return replace(state, nodes={**state.nodes, **new}, vanished_nodes=(), nodes_to_read=()), effects


def _report_places(state: Pods, now_s: float) -> Step:
    effects: list[PodEffect] = []
    for place in tuple(state.places.values()):
        if place.end is not None:
            state, reported = _report_end(state, place, place.end, now_s)
            effects += reported
        elif place.pod is not None and place.pod != place.reported:
            effects += _report_pod(place, place.pod, now_s)
            state = state.with_place(replace(place, reported=place.pod))
    return state, effects


def _report_pod(place: PodPlace, pod: PodObservation, now_s: float) -> list[PodEffect]:
    notice_s = None
    if place.delete_at_s is not None and not place.ended_by_us:
        notice_s = max(0.0, place.delete_at_s - now_s)
    mute = pod.stage is Stage.WAITING
    seen = Report(PlaceSeen(now_s, pod.uid, pod.node, mute, pod.why, notice_s, pod.failure))
    if place.reported is not None:
        return [seen]
    return [Report(PlaceStarted(now_s, pod.uid, 0, pod.pod_uid, pod.job)), seen]


def _report_end(state: Pods, place: PodPlace, end: End, now_s: float) -> Step:
    """Reports the end of a place once, and plans the deletion of its pod object."""
    effects: list[PodEffect] = [StopCreating(place.uid)] if place.creating else []
    pod, before = place.pod, place.reported
    if end.refused:
        effects.append(Report(PlaceFailed(now_s, place.uid, end.why)))
    else:
        if pod is not None and pod.stage is Stage.ENDED and before is not None and before.stage is Stage.WAITING:
            # The worker started and ended between two observations: this report starts the time that the core counts.
            effects.append(Report(PlaceSeen(now_s, pod.uid, pod.node)))
        effects.append(Report(PlaceEnded(now_s, place.uid, end.why)))
    tombstones = {**state.tombstones, place.uid: None}
    while len(tombstones) > state.rules.tombstones_at_most:
        del tombstones[next(iter(tombstones))]
    places = {uid: other for uid, other in state.places.items() if uid != place.uid}
    state = replace(state, places=places, tombstones=tombstones)
    if pod is not None:
        state = replace(state, leftovers={**state.leftovers, pod.uid: Leftover(pod.pod_uid)})
    return state, effects


def _report_synced(state: Pods, now_s: float) -> Step:
    if not state.synced or state.synced_reported:
        return state, []
    return replace(state, synced_reported=True), [Report(ViewSynced(now_s))]


def _create(state: Pods, now_s: float) -> Step:
    effects: list[PodEffect] = []
    for place in tuple(state.places.values()):
        if place.end_request is not None and place.creating and not place.stop_creating:
            effects.append(StopCreating(place.uid))
            state = state.with_place(replace(place, stop_creating=True))
        elif place.template is not None and place.job is not None and not place.creating:
            effects.append(CreatePod(place.uid, place.job, place.template))
            state = state.with_place(replace(place, creating=True))
    return state, effects


def _delete_pods(state: Pods, now_s: float) -> Step:
    effects: list[PodEffect] = []
    for place in tuple(state.places.values()):
        at_s = _deletes_at_s(state, place)
        if at_s is None or now_s < at_s:
            continue
        request, pod = place.end_request, place.pod
        if request is not None:
            grace_s = 0 if _is_stuck(state, place, now_s) else math.ceil(request.grace_s)
            effects.append(DeletePod(place.uid, grace_s, within_s=request.grace_s))
        elif pod is not None:
            grace_s = state.rules.abandoned_grace_s if pod.stage is Stage.ABANDONED else HOSTLESS_GRACE_S
            effects.append(DeletePod(place.uid, grace_s, pod.pod_uid))
        deletion = Deletion(now_s, by_controller=request is not None)
        state = state.with_place(replace(place, deletion=deletion, ended_by_us=True, end_request=None))
    return state, effects


def _delete_leftovers(state: Pods, now_s: float) -> Step:
    due = {
        uid: left
        for uid, left in state.leftovers.items()
        if (at_s := _again_at_s(state, left.deletion)) is not None and now_s >= at_s
    }
    if not due:
        return state, []
    asked = {uid: replace(left, deletion=Deletion(now_s)) for uid, left in due.items()}
    effects: list[PodEffect] = [DeletePod(uid, 0, left.pod_uid) for uid, left in due.items()]
    return replace(state, leftovers={**state.leftovers, **asked}), effects


def _deletes_at_s(state: Pods, place: PodPlace) -> float | None:
    """Returns when to delete the pod of a live place; None during a deletion, or if the pod may continue."""
    rules, pod, request = state.rules, place.pod, place.end_request
    again_at_s = _again_at_s(state, place.deletion)
    if again_at_s is None:
        return None
    if request is not None:
        return request.requested_at_s + (rules.settle_s if place.creating else 0.0)
    if pod is None or pod.deleted_at is not None:
        return None
    if pod.stage is Stage.ABANDONED:
        return again_at_s
    if place.hostless_since_s is not None:
        # An agent that was connected to its host ends by itself; an agent without any host would wait for an hour.
        return max(again_at_s, place.hostless_since_s + rules.hostless_s)
    return None


def _again_at_s(state: Pods, deletion: Deletion | None) -> float | None:
    """Returns when a deletion may be repeated; None until the API has answered it."""
    if deletion is None:
        return -math.inf
    return deletion.requested_at_s + state.rules.delete_again_s if deletion.answered else None


def _is_stuck(state: Pods, place: PodPlace, now_s: float) -> bool:
    """True if the pod was deleted, its grace is over and its machine does not answer."""
    is_over = place.delete_at_s is not None and now_s >= place.delete_at_s
    return is_over and place.pod is not None and not state.is_ready(place.pod.node)


def _deadlines(state: Pods) -> list[float]:
    """Times at which the decision may change without an event."""
    due = [_deletes_at_s(state, place) for place in state.places.values()]
    due += [_again_at_s(state, left.deletion) for left in state.leftovers.values()]
    return [at_s for at_s in due if at_s is not None]


def _why(state: Pods) -> str:
    return f"{len(state.places)} pods on {len(state.nodes)} nodes, {len(state.leftovers)} ended pods to delete"
