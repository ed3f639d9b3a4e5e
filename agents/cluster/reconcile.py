"""What is missing between what is known and what is wanted, and what to ask for because of it.

A place is planned, then saved, then started: whoever finds a started place always finds its uid in the saved record,
so that a crash at any moment leaves no place that nobody knows.
"""

from dataclasses import replace

from agents.cluster.effects import ClusterEffect, EndPlace, SaveKnown, SendTopology, StartPlace, TellNotice
from agents.cluster.state import Backoff, ClusterState, Ending, Place, Sending, Stage, known_of
from agents.cluster.topology import notice_left_s, topology
from messages.clusters import WorkerTemplate
from messages.ids import JobName
from runtime.decision import Decision

Step = tuple[ClusterState, tuple[ClusterEffect, ...]]


def reconcile(state: ClusterState, now_s: float) -> Decision[ClusterState, ClusterEffect]:
    state = _judge_silence(state, now_s)
    state = _notice_places(state)
    if state.synced:
        state = _end_what_should_not_be(state, now_s)
        state = _plan_what_is_missing(state, now_s)
    effects: list[ClusterEffect] = []
    for step in (_tell_notices, _end, _save, _start, _send) if state.synced else (_tell_notices, _save):
        state, asked = step(state, now_s)
        effects.extend(asked)
    due_at_s = min(_deadlines(state, now_s), default=None)
    state = replace(state, due_at_s=now_s if due_at_s is None else due_at_s)
    return Decision(state, tuple(effects), why_of(state, now_s), due_at_s)


def _judge_silence(state: ClusterState, now_s: float) -> ClusterState:
    if not state.link.connected:
        return state
    places = dict(state.places)
    for place in state.places.values():
        forgotten_at_s = place.silent_since_s(state.link.since_s) + state.rules.forget_after_s
        if place.ours or now_s < forgotten_at_s:
            places[place.uid] = replace(place, silent=True) if _falls_silent(state, place, now_s) else place
        else:
            del places[place.uid]
    changed = places != state.places
    return replace(state, places=places).to_send() if changed else state


def _falls_silent(state: ClusterState, place: Place, now_s: float) -> bool:
    spoke = place.status is not None and place.left_at_s is None and not place.silent
    return spoke and now_s >= place.silent_since_s(state.link.since_s) + state.rules.silent_after_s


def _notice_places(state: ClusterState) -> ClusterState:
    """The notice of a node is one of all that is on it."""
    noticed = {}
    for uid, place in state.places.items():
        node = state.nodes.get(place.observed.node)
        if node is not None and node.notice_at_s is not None and place.notice is None and place.ending is None:
            noticed[uid] = place.with_notice(node.notice_at_s, "node")
    return replace(state, places={**state.places, **noticed}).to_send() if noticed else state


def _end_what_should_not_be(state: ClusterState, now_s: float) -> ClusterState:
    reasons = {
        uid: place.ending.why if place.ending is not None else _why_to_end(state, place, now_s)
        for uid, place in state.places.items()
    }
    doomed = {uid: why for uid, why in reasons.items() if why is not None}
    state = _without(state, [uid for uid in doomed if state.places[uid].stage is Stage.PLANNED])
    ending = {
        uid: replace(place, ending=Ending(doomed[uid]))
        for uid, place in state.places.items()
        if uid in doomed and place.ending is None
    }
    return replace(state, places={**state.places, **ending}).to_send() if ending else state


def _why_to_end(state: ClusterState, place: Place, now_s: float) -> str | None:
    rules, wanted = state.rules, state.wanted.get(place.job)
    if wanted is not None and wanted.count == 0:
        return "its job needs no workers any more"
    if place.left_at_s is not None and now_s >= place.left_at_s + rules.leave_grace_s:
        return f"it left, and its place was still not empty after {rules.leave_grace_s:g} s"
    by_s = _must_speak_by_s(state, place)
    if by_s is not None and now_s >= by_s:
        return f"its worker has not spoken within {rules.speak_within_s:g} s"
    lost_s = _is_lost_at_s(state, place)
    if lost_s is not None and now_s >= lost_s:
        return f"node {place.observed.node} is not ready, and its worker was not heard of for {rules.lost_after_s:g} s"
    return None


def _is_lost_at_s(state: ClusterState, place: Place) -> float | None:
    """Neither a node that is not ready nor a silent worker is proof of anything; both together are enough to act."""
    node = state.nodes.get(place.observed.node)
    unheard = place.status is None or place.silent
    if not state.link.connected or not unheard or node is None or node.unready_since_s is None:
        return None
    since_s = max(node.unready_since_s, place.silent_since_s(state.link.since_s))
    return since_s + state.rules.lost_after_s


def _must_speak_by_s(state: ClusterState, place: Place) -> float | None:
    if not state.link.connected or place.status is not None or place.observed.mute or place.stage is Stage.PLANNED:
        return None
    return place.silent_since_s(state.link.since_s) + state.rules.speak_within_s


def _plan_what_is_missing(state: ClusterState, now_s: float) -> ClusterState:
    if state.stopping:
        return state
    for job, wanted in state.wanted.items():
        live = state.live(job)
        missing = wanted.count - len(live)
        if missing < 0:
            planned = [place.uid for place in live if place.stage is Stage.PLANNED]
            state = _without(state, planned[missing:])
        if missing <= 0 or now_s < _starts_at_s(state, job):
            continue
        for _ in range(missing):
            state = _plan_one(state, job, wanted.template, now_s)
    return state


def _plan_one(state: ClusterState, job: JobName, template: WorkerTemplate, now_s: float) -> ClusterState:
    made = state.places_made + 1
    while _is_taken(state, place := _planned(state, made, job, template, now_s)):
        made += 1
    return replace(state, places={**state.places, place.uid: place}, places_made=made).to_send()


def _planned(state: ClusterState, number: int, job: JobName, template: WorkerTemplate, now_s: float) -> Place:
    return Place(f"w{state.incarnation}x{number}", job, Stage.PLANNED, since_s=now_s, template=template)


def _is_taken(state: ClusterState, place: Place) -> bool:
    """By somebody who spoke under a uid that was not given to anybody yet."""
    return place.uid in state.places or place.uid in state.tombstones or place.id in state.tombstones


def _without(state: ClusterState, uids: list[str]) -> ClusterState:
    """Of planned places, for which nothing was started."""
    if not uids:
        return state
    return replace(state, places={uid: place for uid, place in state.places.items() if uid not in uids}).to_send()


def _starts_at_s(state: ClusterState, job: JobName) -> float:
    return state.backoffs.get(job, Backoff()).next_at_s


def _tell_notices(state: ClusterState, now_s: float) -> Step:
    """Once each; the topology repeats it."""
    effects: list[ClusterEffect] = []
    places = dict(state.places)
    for place in state.places.values():
        notice = place.notice
        if notice is None or notice.told or place.worker is None or place.left_at_s is not None:
            continue
        if not state.link.connected:
            continue
        places[place.uid] = replace(place, notice=replace(notice, told=True))
        knows_itself = place.status is not None and place.status.notice_s is not None
        if place.ending is None and not knows_itself:
            remaining_s = notice_left_s(state.rules, notice.at_s, now_s)
            effects.append(TellNotice(place.worker, place.job, remaining_s, notice.source))
    return (replace(state, places=places), tuple(effects)) if places != state.places else (state, ())


def _end(state: ClusterState, now_s: float) -> Step:
    effects: list[ClusterEffect] = []
    places = dict(state.places)
    for place in state.places.values():
        if place.ending is not None and now_s >= _ends_at_s(state, place, place.ending):
            worker = None if place.ours else place.worker
            effects.append(EndPlace(place.uid, state.rules.end_grace_s, place.ending.why, worker))
            places[place.uid] = replace(place, ending=Ending(place.ending.why, asked_at_s=now_s))
    return (replace(state, places=places), tuple(effects)) if effects else (state, ())


def _ends_at_s(state: ClusterState, place: Place, ending: Ending) -> float:
    """A place that is just being started is ended when it has, or when that takes too long."""
    rules = state.rules
    if ending.asked_at_s is not None:
        return ending.asked_at_s + rules.end_grace_s + rules.end_again_s
    return place.since_s + rules.speak_within_s if place.stage is Stage.ASKED else place.since_s


def _save(state: ClusterState, now_s: float) -> Step:
    if state.saving.under_way is not None or now_s < state.saving.not_before_s:
        return state, ()
    known = known_of(state)
    if known == state.saving.saved:
        return state, ()
    return replace(state, saving=replace(state.saving, under_way=known)), (SaveKnown(known),)


def _start(state: ClusterState, now_s: float) -> Step:
    known = state.saving.saved
    saved = {place.uid for place in known.places} if known is not None else set()
    planned = [place for place in state.places.values() if place.stage is Stage.PLANNED and place.uid in saved]
    asked = {place.uid: replace(place, stage=Stage.ASKED, since_s=now_s) for place in planned}
    departing = frozenset(place.uid for place in state.places.values() if place.departing)
    effects = tuple(StartPlace(place.uid, place.job, place.template, departing) for place in planned)
    return (replace(state, places={**state.places, **asked}), effects) if asked else (state, ())


def _send(state: ClusterState, now_s: float) -> Step:
    if not state.link.connected or now_s < _sends_at_s(state):
        return state, ()
    gone = tuple(gone for gone in state.gone if now_s - gone.at_s < state.rules.gone_for_s)
    saved_too = state.gone[-state.rules.gone_saved_at_most :]
    kept = gone if len(gone) > len(saved_too) else saved_too
    sending = Sending(state.sending.seq + 1, at_s=now_s, unsent=False)
    state = replace(state, gone=kept, sending=sending)
    return state, (SendTopology(topology(state, now_s)),)


def _sends_at_s(state: ClusterState) -> float:
    rules, sending = state.rules, state.sending
    if sending.at_s is None:
        return state.link.since_s
    if sending.loss_unsent:
        return sending.at_s + rules.loss_gap_s
    return sending.at_s + (rules.topology_gap_s if sending.unsent else rules.topology_every_s)


def _deadlines(state: ClusterState, now_s: float) -> list[float]:
    """When time alone could change the decision."""
    rules, saving = state.rules, state.saving
    deadlines = [saving.not_before_s] if saving.under_way is None and now_s < saving.not_before_s else []
    if not state.synced:
        return deadlines
    deadlines += [_starts_at_s(state, job) for job in _short_of(state)]
    if state.link.connected:
        deadlines.append(_sends_at_s(state))
    for place in state.places.values():
        silent_since_s = place.silent_since_s(state.link.since_s)
        if place.ending is not None:
            deadlines.append(_ends_at_s(state, place, place.ending))
        elif place.left_at_s is not None:
            deadlines.append(place.left_at_s + rules.leave_grace_s)
        elif (by_s := _must_speak_by_s(state, place)) is not None:
            deadlines.append(by_s)
        if place.ending is None and (lost_s := _is_lost_at_s(state, place)) is not None:
            deadlines.append(lost_s)
        if state.link.connected and not place.silent and place.status is not None and place.left_at_s is None:
            deadlines.append(silent_since_s + rules.silent_after_s)
    return deadlines


def _short_of(state: ClusterState) -> list[JobName]:
    if state.stopping:
        return []
    return [job for job, wanted in state.wanted.items() if wanted.count > len(state.live(job))]


def why_of(state: ClusterState, now_s: float) -> str:
    if state.stopping:
        return f"stopping, places still to end: {len(state.places)}"
    jobs = [_why_of_job(state, job, wanted.count, now_s) for job, wanted in state.wanted.items() if wanted.count]
    return "; ".join(jobs) or "no job needs workers here"


def _why_of_job(state: ClusterState, job: JobName, count: int, now_s: float) -> str:
    live = state.live(job)
    speaking = sum(place.status is not None and not place.silent for place in live)
    held_up = len(live) < count and now_s < _starts_at_s(state, job)
    later = f", {state.backoffs[job].delay_s:g} s between starts because they die young" if held_up else ""
    return f"{job}: {speaking} of {count} workers are heard of{later}"
