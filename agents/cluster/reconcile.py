"""Reconciling: compares the known with the wanted state and requests what is missing.

A place is planned, then saved, then started. The saved record therefore has the uid of each started place, and a crash
leaves no unknown place.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from agents.cluster.effects import ClusterEffect, EndPlace, SaveKnown, SendTopology, StartPlace, TellNotice
from agents.cluster.reports import report
from agents.cluster.state import Backoff, ClusterState, Ending, Place, Stage, known_of
from agents.cluster.topology import notice_left_s
from messages.clusters import WorkerTemplate
from messages.ids import JobName
from runtime.backoff import pause_after
from runtime.decision import Decision

Step = tuple[ClusterState, tuple[ClusterEffect, ...]]


def reconcile(state: ClusterState, now_s: float) -> Decision[ClusterState, ClusterEffect]:
    state = _judge_silence(state, now_s)
    state = _notice_places(state)
    if state.synced:
        state = _order_ends(state, now_s)
        state = _plan_missing_places(state, now_s)
    effects: list[ClusterEffect] = []
    for step in (_tell_notices, _end, _save, _start, _send) if state.synced else (_tell_notices, _save):
        state, asked = step(state, now_s)
        effects.extend(asked)
    due_at_s = min(_deadlines(state, now_s), default=None)
    state = replace(state, due_at_s=now_s if due_at_s is None else due_at_s, stirred=False)
    return Decision(state, tuple(effects), why_of(state, now_s), due_at_s)


def only_report(state: ClusterState, now_s: float) -> Decision[ClusterState, ClusterEffect]:
    """Sends a report if one is due. Nothing else has changed."""
    rules = state.rules
    gap_s = min(rules.report_gap_s + rules.status_gap_of_worker_s * len(state.places), rules.status_gap_most_s)
    state, effects = _send_after(state, now_s, gap_s) if state.synced and state.sending.unsent else (state, ())
    wake_at_s = min(state.due_at_s, _sends_at_s(state, gap_s)) if state.link.connected else state.due_at_s
    return Decision(state, effects, wake_at_s=wake_at_s)


def _judge_silence(state: ClusterState, now_s: float) -> ClusterState:
    if not state.link.connected:
        return state
    for place in tuple(state.places.values()):
        forgotten_at_s = place.silent_since_s(state.link.since_s) + state.rules.forget_after_s
        if not place.ours and now_s >= forgotten_at_s:
            state = state.drop(place.uid)
        elif _falls_silent(state, place, now_s):
            state = state.put(replace(place, silent=True))
    return state


def _falls_silent(state: ClusterState, place: Place, now_s: float) -> bool:
    spoke = place.status is not None and place.left_at_s is None and not place.silent
    return spoke and now_s >= place.silent_since_s(state.link.since_s) + state.rules.silent_after_s


def _notice_places(state: ClusterState) -> ClusterState:
    """Gives the notice of a node to all places on it."""
    noticed_at_s = {name: node.notice_at_s for name, node in state.nodes.items() if node.notice_at_s is not None}
    for place in tuple(state.places.values()) if noticed_at_s else ():
        at_s = noticed_at_s.get(place.observed.node)
        if at_s is not None and place.notice is None and place.ending is None:
            state = state.put(place.with_notice(at_s, "node"))
    return state


def _order_ends(state: ClusterState, now_s: float) -> ClusterState:
    for place in tuple(state.places.values()):
        why = place.ending.why if place.ending is not None else _why_to_end(state, place, now_s)
        if why is not None and place.stage is Stage.PLANNED:
            state = state.drop(place.uid)
        elif why is not None and place.ending is None:
            state = state.put(replace(place, ending=Ending(why)))
    return state


def _why_to_end(state: ClusterState, place: Place, now_s: float) -> str | None:
    rules, wanted = state.rules, state.wanted.get(place.job)
    if wanted is not None and wanted.count == 0:
        return "its job needs no workers now"
    if place.left_at_s is not None and now_s >= place.left_at_s + rules.leave_grace_s:
        return f"it left, and some of its processes still ran after {rules.leave_grace_s:g} s"
    by_s = _heartbeat_due_s(state, place)
    if by_s is not None and now_s >= by_s:
        return f"its worker sent no heartbeat within {rules.speak_within_s:g} s"
    lost_s = _is_lost_at_s(state, place)
    if lost_s is not None and now_s >= lost_s:
        return f"node {place.observed.node} is not ready, and its worker sent no heartbeat for {rules.lost_after_s:g} s"
    return None


def _is_lost_at_s(state: ClusterState, place: Place) -> float | None:
    """Returns when a place counts as lost. Neither an unready node nor a silent worker is enough; both together are."""
    node = state.nodes.get(place.observed.node)
    unheard = place.status is None or place.silent
    if not state.link.connected or not unheard or node is None or node.unready_since_s is None:
        return None
    since_s = max(node.unready_since_s, place.silent_since_s(state.link.since_s))
    return since_s + state.rules.lost_after_s


def _heartbeat_due_s(state: ClusterState, place: Place) -> float | None:
    if not state.link.connected or place.status is not None or place.observed.mute or place.stage is Stage.PLANNED:
        return None
    return place.silent_since_s(state.link.since_s) + state.rules.speak_within_s


def _plan_missing_places(state: ClusterState, now_s: float) -> ClusterState:
    if state.stopping:
        return state
    live = _live_by_job(state)
    for job, wanted in state.wanted.items():
        there = live.get(job, [])
        missing = wanted.count - len(there)
        if missing < 0:
            for place in [place for place in there if place.stage is Stage.PLANNED][missing:]:
                state = state.drop(place.uid)
        if missing <= 0 or now_s < _starts_at_s(state, job):
            continue
        for _ in range(missing):
            state = _plan_one(state, job, wanted.template, now_s)
    return state


def _live_by_job(state: ClusterState) -> dict[JobName, list[Place]]:
    """Returns the places that count towards the wanted number, by job."""
    live: dict[JobName, list[Place]] = {}
    for place in state.places.values():
        if not place.departing:
            live.setdefault(place.job, []).append(place)
    return live


def _plan_one(state: ClusterState, job: JobName, template: WorkerTemplate, now_s: float) -> ClusterState:
    made = state.places_made + 1
    while _is_taken(state, place := _planned(state, made, job, template, now_s)):
        made += 1
    return replace(state.put(place), places_made=made)


def _planned(state: ClusterState, number: int, job: JobName, template: WorkerTemplate, now_s: float) -> Place:
    return Place(f"w{state.incarnation}x{number}", job, Stage.PLANNED, since_s=now_s, template=template)


def _is_taken(state: ClusterState, place: Place) -> bool:
    """True if a worker has already used this uid."""
    return place.uid in state.places or place.uid in state.tombstones or place.id in state.tombstones


def _starts_at_s(state: ClusterState, job: JobName) -> float:
    return state.backoffs.get(job, Backoff()).next_at_s


def _tell_notices(state: ClusterState, now_s: float) -> Step:
    """Sends each notice once; the topology repeats it."""
    effects: list[ClusterEffect] = []
    if not state.link.connected:
        return state, ()
    for place in tuple(state.places.values()):
        notice = place.notice
        if notice is None or notice.reported or place.worker is None or place.left_at_s is not None:
            continue
        state = state.put(replace(place, notice=replace(notice, reported=True)), unsent=False)
        knows_itself = place.status is not None and place.status.notice_s is not None
        if place.ending is None and not knows_itself:
            remaining_s = notice_left_s(state.rules, notice.at_s, now_s)
            effects.append(TellNotice(place.worker, place.job, remaining_s, notice.source))
    return state, tuple(effects)


def _end(state: ClusterState, now_s: float) -> Step:
    effects: list[ClusterEffect] = []
    for place in tuple(state.places.values()):
        if place.ending is not None and now_s >= _ends_at_s(state, place, place.ending):
            worker = None if place.ours else place.worker
            effects.append(EndPlace(place.uid, state.rules.end_grace_s, place.ending.why, worker))
            state = state.put(replace(place, ending=Ending(place.ending.why, asked_at_s=now_s)), unsent=False)
    return state, tuple(effects)


def _ends_at_s(state: ClusterState, place: Place, ending: Ending) -> float:
    """Returns when to end a place. A place that is being started ends after its start, or after `speak_within_s`."""
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
    planned = [place for place in state.places.values() if place.stage is Stage.PLANNED]
    known = state.saving.saved
    if not planned or known is None:
        return state, ()
    saved = {place.uid for place in known.places}
    departing = frozenset(place.uid for place in state.places.values() if place.departing)
    effects = []
    for place in planned:
        if place.uid in saved:
            state = state.put(replace(place, stage=Stage.ASKED, since_s=now_s), unsent=False)
            effects.append(StartPlace(place.uid, place.job, place.template, departing))
    return state, tuple(effects)


def _send(state: ClusterState, now_s: float) -> Step:
    return _send_after(state, now_s, state.rules.report_gap_s)


def _send_after(state: ClusterState, now_s: float, gap_s: float) -> Step:
    if not state.link.connected or now_s < _sends_at_s(state, gap_s):
        return state, ()
    state, heartbeat = report(state, now_s)
    return state, (SendTopology(heartbeat),)


def _sends_at_s(state: ClusterState, gap_s: float) -> float:
    """When the next report is due. Changes are sent `gap_s` after the last report at the earliest."""
    rules, sending = state.rules, state.sending
    if sending.at_s is None:
        return state.link.since_s
    if sending.whole and sending.whole_at_s is not None:
        return max(sending.at_s + rules.report_gap_s, sending.whole_at_s + rules.whole_gap_s)
    return sending.at_s + (gap_s if sending.unsent else rules.report_every_s)


def _deadlines(state: ClusterState, now_s: float) -> Iterator[float]:
    """Yields the times at which the decision may change without an event."""
    saving = state.saving
    if saving.under_way is None and now_s < saving.not_before_s:
        yield saving.not_before_s
    if not state.synced:
        return
    for job in _short_of(state):
        yield _starts_at_s(state, job)
    if state.link.connected:
        yield _sends_at_s(state, state.rules.report_gap_s)
    for place in state.places.values():
        yield from _deadlines_of(state, place)


def _deadlines_of(state: ClusterState, place: Place) -> Iterator[float]:
    rules = state.rules
    if place.ending is not None:
        yield _ends_at_s(state, place, place.ending)
    elif place.left_at_s is not None:
        yield place.left_at_s + rules.leave_grace_s
    elif (by_s := _heartbeat_due_s(state, place)) is not None:
        yield by_s
    if place.ending is None and (lost_s := _is_lost_at_s(state, place)) is not None:
        yield lost_s
    if state.link.connected and not place.silent and place.status is not None and place.left_at_s is None:
        yield place.silent_since_s(state.link.since_s) + rules.silent_after_s


def _short_of(state: ClusterState) -> list[JobName]:
    if state.stopping:
        return []
    live = _live_by_job(state)
    return [job for job, wanted in state.wanted.items() if wanted.count > len(live.get(job, []))]


def why_of(state: ClusterState, now_s: float) -> str:
    if state.stopping:
        return f"stopping, places still to end: {len(state.places)}"
    live = _live_by_job(state)
    jobs = [
        _why_of_job(state, job, wanted.count, live.get(job, []), now_s)
        for job, wanted in state.wanted.items()
        if wanted.count
    ]
    return "; ".join(jobs) or "no job needs workers here"


def _why_of_job(state: ClusterState, job: JobName, count: int, live: list[Place], now_s: float) -> str:
    speaking = sum(place.status is not None and not place.silent for place in live)
    backs_off = len(live) < count and now_s < _starts_at_s(state, job)
    if not backs_off:
        return f"{job}: {speaking} of {count} workers send heartbeats"
    pause_s = pause_after(state.backoffs[job].failures, state.rules.backoff_s, state.rules.backoff_max_s)
    return f"{job}: {speaking} of {count} workers send heartbeats, {slower_starts(pause_s)}"


def slower_starts(pause_s: float) -> str:
    return f"{pause_s:g} s between starts because they end early"
