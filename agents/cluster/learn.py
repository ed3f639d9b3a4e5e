"""Learning: each event updates the state, without decisions."""

from typing import assert_never

from msgspec.structs import replace

from agents.cluster.commands import answer_to
from agents.cluster.events import (
    AgentEnded,
    BusBack,
    BusLost,
    ClusterEvent,
    KeepAsked,
    KnownLost,
    KnownSaved,
    LeaderSeen,
    NodeGone,
    NodeSeen,
    PlaceEnded,
    PlaceFailed,
    PlaceSeen,
    PlaceStarted,
    RemoveAsked,
    SaveFailed,
    StopAsked,
    Ticked,
    ViewSynced,
    WholeAsked,
    WorkerHeard,
    WorkerSaidLeft,
)
from agents.cluster.state import (
    UNHEARD,
    WHY_AT_MOST,
    Backoff,
    BusLink,
    ClusterState,
    Ending,
    Gone,
    Leadership,
    Node,
    Observed,
    Place,
    Saving,
    Stage,
    Wanted,
    uid_of,
)
from agents.cluster.topology import what_matters
from messages.bounds import doubt
from messages.clusters import KeepWorkers, RemoveWorkers, WorkerTemplate
from messages.ids import NO_EPOCH, NO_GENERATION, Epoch, JobName, WorkerId
from messages.workers import WorkerPhase, WorkerStatus
from runtime.backoff import pause_after


def learn(state: ClusterState, event: ClusterEvent) -> ClusterState:
    if event.at_s > state.due_at_s + state.rules.paused_after_s:
        # The controller itself was paused and has yet to read its workers' heartbeats, as after a lost bus.
        state = replace(state, link=replace(state.link, since_s=max(state.link.since_s, event.at_s)))
    if not isinstance(event, WorkerHeard | WholeAsked | Ticked) and not state.stirred:
        state = replace(state, stirred=True)
    match event:
        case Ticked():
            return state
        case WorkerHeard(at_s, status):
            return _hear(state, status, at_s)
        case WholeAsked():
            return _to_send_whole(state)
        case WorkerSaidLeft(at_s, worker, why):
            return _leave(state, worker, why, at_s)
        case KeepAsked(_, command, epoch, ask) | RemoveAsked(_, command, epoch, ask):
            return _obey(state, command, epoch, ask)
        case LeaderSeen(_, claim):
            return _see_leader(state, claim)
        case PlaceStarted():
            return _started(state, event)
        case PlaceSeen():
            return _see_place(state, event)
        case PlaceFailed(at_s, uid, why):
            return _end(state, uid, not_started(why), at_s)
        case AgentEnded(at_s, uid, why):
            return _lose_agent(state, uid, why, at_s)
        case PlaceEnded(at_s, uid, why):
            return _end(state, uid, why, at_s)
        case NodeSeen():
            return _see_node(state, event)
        case NodeGone(_, name):
            return _lose_node(state, name)
        case ViewSynced():
            return replace(state, synced=True)
        case KnownSaved():
            saved = state.saving.under_way or state.saving.saved
            return replace(state, saving=replace(state.saving, saved=saved, under_way=None, failures=0))
        case KnownLost():
            return replace(state, saving=replace(state.saving, saved=None))
        case SaveFailed(at_s, _):
            return _save_later(state, at_s)
        case BusLost():
            return replace(state, link=replace(state.link, connected=False))
        case BusBack(at_s):
            # Messages that were sent shortly before the connection broke may be lost.
            return _to_send_whole(replace(state, link=BusLink(at_s)))
        case StopAsked(_, why):
            return _stop(state, why)
        case _:
            assert_never(event)


def not_started(why: str) -> str:
    return f"could not be started: {why}"


def _to_send_whole(state: ClusterState) -> ClusterState:
    return replace(state, sending=replace(state.sending, whole=True, unsent=True))


def _obey(state: ClusterState, command: KeepWorkers | RemoveWorkers, epoch: Epoch | None, ask: int) -> ClusterState:
    """Carries out a command, or answers why it is refused."""
    answer = answer_to(state, command, epoch)
    state = replace(state, answers={**state.answers, ask: answer})
    if not answer.ok:
        return state
    state = replace(state, leadership=replace(state.leadership, epoch=epoch or NO_EPOCH))
    return _keep(state, command) if isinstance(command, KeepWorkers) else _remove(state, command)


def _hear(state: ClusterState, status: WorkerStatus, at_s: float) -> ClusterState:
    uid = uid_of(status.worker)
    if status.cluster != state.cluster or status.worker in state.tombstones or uid in state.tombstones:
        return state
    known = state.places.get(uid)
    if known is None and len(state.places) >= state.rules.max_places:
        return state
    place = known or Place(uid, status.job, Stage.BY_HAND, since_s=at_s)
    if place.job != status.job or place.left_at_s is not None:
        return state
    if place.worker not in (None, status.worker):
        state = _tombstone(state, place, "its agent was restarted", at_s)
        place = replace(place, worker=None, status=None)
    newest = place.status.seq if place.status is not None else -1
    if status.seq <= newest:
        return state
    if doubt(status, generation=NO_GENERATION, seq=newest):
        return replace(state, doubts=state.doubts + 1)
    if status.step is not None and state.steps.get(status.job) != status.step:
        state = state.own("steps")
        state.steps[status.job] = status.step
    heard = replace(
        place,
        worker=status.worker,
        status=status,
        heard_at_s=at_s,
        silent=False,
        joined=place.joined or status.phase not in (WorkerPhase.WARMING, WorkerPhase.LEAVING),
    )
    if place.status is None or place.silent or place.departing != heard.departing:
        return replace(state.put(heard), stirred=True)
    return state.put(heard, unsent=what_matters(place.status) != what_matters(status))


def _see_leader(state: ClusterState, claim: Epoch) -> ClusterState:
    """Learns the newest claim. Claims only increase: after a lower claim, the bus lost its data and epochs restart."""
    epoch = state.leadership.epoch
    starts_again = claim < max(epoch, state.leadership.claim or NO_EPOCH)
    return replace(state, leadership=Leadership(NO_EPOCH if starts_again else epoch, claim))


def _started(state: ClusterState, event: PlaceStarted) -> ClusterState:
    place = state.places.get(event.uid)
    if place is None:
        if event.job is None:
            return state
        place = Place(event.uid, event.job, Stage.RUNNING, since_s=event.at_s)
        if place.uid in state.tombstones or place.id in state.tombstones:
            return state
    started = replace(place, stage=Stage.RUNNING, pid=event.pid, birth=event.birth)
    return state.put(started, unsent=event.uid not in state.places)


def _see_place(state: ClusterState, event: PlaceSeen) -> ClusterState:
    """Learns the state of a pod. Its life starts when its worker can send heartbeats."""
    place = state.places.get(event.uid)
    if place is None:
        return state
    begins = place.observed.mute and not event.mute
    seen = replace(place, observed=_observe(place, event), since_s=event.at_s if begins else place.since_s)
    if event.notice_s is not None and place.ending is None:
        seen = seen.with_notice(event.at_s + event.notice_s, "pod")
    return state.put(seen) if seen != place else state


def _observe(place: Place, event: PlaceSeen) -> Observed:
    """Returns what is observed. While one image fails on one node, the age continues and the last detail remains."""
    observed = Observed(event.node, event.mute, event.waits_for[:WHY_AT_MOST])
    known, failure = place.observed.failure, event.failure
    if failure is None:
        return observed
    if known is None or (known.image, known.node) != (failure.image, failure.node):
        return replace(observed, failure=failure, failing_since_s=event.at_s)
    if not failure.detail:
        failure = replace(failure, detail=known.detail)
    return replace(observed, failure=failure, failing_since_s=place.observed.failing_since_s)


def _see_node(state: ClusterState, event: NodeSeen) -> ClusterState:
    observation, known = event.observation, state.nodes.get(event.observation.node)
    if known is not None and known.observation.uid != observation.uid:
        known = None
    if known is not None and not observation.ready and (known.observation.ready or known.observation.was_ready):
        observation = replace(observation, was_ready=True)
    node = Node(
        observation,
        notice_at_s=None if observation.notice_s is None else event.at_s + max(0.0, observation.notice_s),
        unready_since_s=None if observation.ready else event.at_s,
    )
    if known is not None:
        node = replace(
            node,
            notice_at_s=_earliest(known.notice_at_s, node.notice_at_s) if node.notice_at_s is not None else None,
            unready_since_s=_earliest(known.unready_since_s, node.unready_since_s) if not observation.ready else None,
        )
    if node == known:
        return state
    before = state.nodes.get(observation.node)
    state = state.own("nodes")
    state.nodes[observation.node] = node
    is_moved = before is None or before.observation.zone != observation.zone
    return state.to_send(*(_places_on(state, observation.node) if is_moved else ()), nodes=(observation.node,))


def _lose_node(state: ClusterState, name: str) -> ClusterState:
    if name not in state.nodes:
        return state
    state = state.own("nodes")
    del state.nodes[name]
    return state.to_send(*_places_on(state, name), nodes=(name,))


def _places_on(state: ClusterState, node: str) -> list[str]:
    """Returns the places on a node. Their observations include the node's zone."""
    return [uid for uid, place in state.places.items() if place.observed.node == node]


def _earliest(first_s: float | None, second_s: float | None) -> float | None:
    return min((at_s for at_s in (first_s, second_s) if at_s is not None), default=None)


def _leave(state: ClusterState, worker: WorkerId, why: str, at_s: float) -> ClusterState:
    place = state.places.get(uid_of(worker))
    if worker in state.tombstones:
        return state
    if place is None or place.worker not in (None, worker):
        return _with_tombstone(state, worker)
    place = replace(place, worker=worker)
    state = _back_off(_tombstone(state, place, why, at_s), place, at_s)
    return state.put(replace(place, left_at_s=at_s)) if place.ours else state.drop(place.uid)


def _lose_agent(state: ClusterState, uid: str, why: str, at_s: float) -> ClusterState:
    place = state.places.get(uid)
    return state if place is None or place.worker is None else _leave(state, place.worker, why, at_s)


def _end(state: ClusterState, uid: str, why: str, at_s: float) -> ClusterState:
    place = state.places.get(uid)
    if place is None:
        return state
    state = _with_tombstone(state.drop(uid), uid)
    if place.left_at_s is not None:
        return state
    return _back_off(_tombstone(state, place, why, at_s), place, at_s)


def _keep(state: ClusterState, keep: KeepWorkers) -> ClusterState:
    """Stores the wanted count of a job. The newest job is last, so that the oldest ended jobs are forgotten first."""
    wanted = {job: value for job, value in state.wanted.items() if job != keep.job}
    wanted[keep.job] = Wanted(keep.count, keep.template if keep.count else WorkerTemplate())
    ended = [job for job, value in wanted.items() if value.count == 0 and not _has_places(state, job)]
    for job in ended[: -state.rules.ended_jobs_at_most]:
        del wanted[job]
    is_new = state.wanted.get(keep.job) != wanted[keep.job]
    backoffs = {job: backoff for job, backoff in state.backoffs.items() if job in wanted}
    steps = {job: step for job, step in state.steps.items() if job in wanted}
    state = replace(state, wanted=wanted, backoffs=backoffs, steps=steps)
    return state.to_send() if is_new else state


def _remove(state: ClusterState, remove: RemoveWorkers) -> ClusterState:
    """Ends workers without replacement. The wanted count decreases by their number, except for surplus places."""
    job = remove.job
    live_before = len(state.live(job))
    for worker in remove.workers:
        place = state.places.get(uid_of(worker))
        if place is not None and place.job == job and (place.id == worker or worker.endswith(f"-{UNHEARD}")):
            state = _to_be_ended(state, place, remove.why)
    wanted = state.wanted.get(job)
    removed = live_before - len(state.live(job))
    if wanted is None or not removed:
        return state
    count = min(wanted.count, max(live_before, wanted.count) - removed)
    return replace(state, wanted={**state.wanted, job: Wanted(count, wanted.template)}).to_send()


def _stop(state: ClusterState, why: str) -> ClusterState:
    state = replace(state, stopping=True)
    for place in tuple(state.places.values()):
        if place.ours:
            state = _to_be_ended(state, place, why)
    return state


def _save_later(state: ClusterState, at_s: float) -> ClusterState:
    rules, failures = state.rules, state.saving.failures + 1
    not_before_s = at_s + pause_after(failures, rules.save_retry_s, rules.save_retry_max_s)
    return replace(state, saving=Saving(state.saving.saved, failures=failures, not_before_s=not_before_s))


def _to_be_ended(state: ClusterState, place: Place, why: str) -> ClusterState:
    return state if place.ending is not None else state.put(replace(place, ending=Ending(why)))


def _back_off(state: ClusterState, place: Place, at_s: float) -> ClusterState:
    """Replaces a place that was of use at once. After each early end, the pause before the next start grows."""
    rules, backoff = state.rules, state.backoffs.get(place.job, Backoff())
    if place.ending is not None or place.notice is not None or not place.ours:
        return state
    if at_s - place.since_s >= rules.lived_s:
        backoff = Backoff()
    elif place.joined:
        backoff = replace(backoff, next_at_s=at_s)
    elif at_s >= backoff.next_at_s:
        failures = backoff.failures + 1
        backoff = Backoff(failures, at_s + pause_after(failures, rules.backoff_s, rules.backoff_max_s))
    return replace(state, backoffs={**state.backoffs, place.job: backoff})


def _tombstone(state: ClusterState, place: Place, why: str, at_s: float) -> ClusterState:
    state = _with_tombstone(state, place.id).own("gone").to_send()
    state.gone[place.id] = Gone(place.id, place.job, why[:WHY_AT_MOST], at_s, place.status)
    tombstoned = [place.id]
    while len(state.gone) > state.rules.gone_at_most:
        tombstoned.append(oldest := next(iter(state.gone)))
        del state.gone[oldest]
    state.sending.tombstoned.update(dict.fromkeys(tombstoned))
    return state


def _with_tombstone(state: ClusterState, name: str) -> ClusterState:
    state = state.own("tombstones")
    state.tombstones[name] = None
    while len(state.tombstones) > state.rules.tombstones_at_most:
        del state.tombstones[next(iter(state.tombstones))]
    return state


def _has_places(state: ClusterState, job: JobName) -> bool:
    return any(place.job == job for place in state.places.values())
