"""Reports of the controller to the master: the changes since the last report, or the whole state.

A report of changes costs as much as the changes, even with ten thousand workers. Only a report of the whole state,
which is sent at the start and when a master requests it, visits all workers.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from agents.cluster.state import ClusterState, Gone, Reported, Sending, newest_gone, uid_of
from agents.cluster.topology import gone_observation, is_listed, is_reported, node_observation, observation
from messages.clusters import ClusterHeartbeat, NodeObservation, WorkerObservation, digest_mark, digest_text
from messages.ids import JobName, WorkerId

PART_BYTES = 256_000
"""Approximate size of one message. A larger report is sent in parts."""
REFRESHED_PART = 10
"""One in so many workers is reported again without a change."""
FRAME_BYTES = 1_000
"""Bytes for the other fields of a report."""

_encoder = msgspec.json.Encoder()


def report(state: ClusterState, now_s: float) -> tuple[ClusterState, ClusterHeartbeat]:
    seq = state.sending.seq + 1
    made = _whole(state, seq, now_s) if state.sending.whole else _changes(state, seq, now_s)
    heartbeat, reported = made
    is_whole, before = state.sending.whole, state.sending
    is_refreshed = is_whole or _is_refresh_due(state, now_s)
    sending = Sending(
        seq,
        now_s,
        unsent=False,
        whole=False,
        whole_at_s=now_s if is_whole else before.whole_at_s,
        refreshed_at_s=now_s if is_refreshed else before.refreshed_at_s,
    )
    state = replace(state, sending=sending, reported=reported)
    return _without_old_gone(state, now_s), replace(heartbeat, digest=digest_text(reported.digest))


def whole_state(state: ClusterState, now_s: float) -> ClusterHeartbeat:
    """Returns the whole state as of the last report."""
    return _whole(state, state.sending.seq, now_s)[0]


def split(heartbeat: ClusterHeartbeat, bytes_at_most: int = PART_BYTES) -> tuple[ClusterHeartbeat, ...]:
    """Splits a report into messages. Each has at least one entry."""
    parts = [replace(heartbeat, workers=(), nodes=(), keeps={}, forgotten=(), forgotten_nodes=())]
    left = bytes_at_most - FRAME_BYTES
    room = left
    fields: dict[str, list[Any]] = {}

    def close() -> None:
        parts[-1] = replace(parts[-1], **{name: _as_field(name, values) for name, values in fields.items()})
        fields.clear()

    for name, entry in _entries(heartbeat):
        size = len(_encoder.encode(entry)) + 1
        if size > room and fields:
            close()
            parts.append(replace(parts[0], workers=(), nodes=(), keeps={}, forgotten=(), forgotten_nodes=()))
            room = left
        fields.setdefault(name, []).append(entry)
        room -= size
    close()
    if len(parts) == 1:
        return (heartbeat,)
    return tuple(replace(part, part=number, parts=len(parts)) for number, part in enumerate(parts, 1))


def _entries(heartbeat: ClusterHeartbeat) -> Iterator[tuple[str, object]]:
    """Yields the entries that a report may have many of. Steps of jobs are few."""
    for name in ("workers", "nodes", "forgotten", "forgotten_nodes"):
        for entry in getattr(heartbeat, name):
            yield name, entry
    for kept in heartbeat.keeps.items():
        yield "keeps", kept


def _as_field(name: str, values: list[Any]) -> object:
    return dict(values) if name == "keeps" else tuple(values)


def _whole(state: ClusterState, seq: int, now_s: float) -> tuple[ClusterHeartbeat, Reported]:
    listed = {uid: place.id for uid, place in state.places.items() if is_listed(place)}
    living = [observation(state, state.places[uid], now_s) for uid in listed]
    gone = [gone_observation(each) for each in state.gone.values() if is_reported(state, each, now_s)]
    nodes = [node_observation(node, now_s) for node in state.nodes.values()]
    heartbeat = replace(_frame(state, seq, (*living, *gone), nodes, _keeps(state)), steps=state.steps)
    reported = Reported(
        dict.fromkeys((each.worker for each in heartbeat.workers), seq),
        dict.fromkeys(state.nodes, seq),
        _keeps(state),
        state.steps,
        listed,
    )
    return heartbeat, replace(reported, digest=_digest_of(reported))


def _changes(state: ClusterState, seq: int, now_s: float) -> tuple[ClusterHeartbeat, Reported]:
    draft = _Draft(state.reported, seq)
    observations: list[WorkerObservation] = []
    for uid in {**state.sending.touched, **_oldest(state, now_s)}:
        place = state.places.get(uid)
        draft.list_place(uid, place.id if place is not None and is_listed(place) else None)
        if place is not None and is_listed(place):
            observations.append(observation(state, place, now_s))
    tombstoned = [state.gone[worker] for worker in state.sending.tombstoned if worker in state.gone]
    observations += [gone_observation(each) for each in tombstoned]
    draft.name_workers(each.worker for each in observations)
    draft.forget_workers(worker for worker in state.sending.tombstoned if worker not in state.gone)
    draft.forget_workers(each.worker for each in _reported_no_longer(state, now_s))
    nodes = [node_observation(state.nodes[name], now_s) for name in state.sending.touched_nodes if name in state.nodes]
    lost = [name for name in state.sending.touched_nodes if name not in state.nodes]
    draft.name_nodes([each.node for each in nodes], lost)
    keeps = draft.keep(_keeps(state))
    heartbeat = _frame(state, seq, observations, nodes, keeps)
    heartbeat = replace(
        heartbeat,
        steps={job: step for job, step in state.steps.items() if state.reported.steps.get(job) != step},
        base=state.sending.seq,
        forgotten=tuple(draft.forgotten),
        forgotten_nodes=tuple(draft.forgotten_nodes),
    )
    return heartbeat, draft.reported(state.steps)


def _is_refresh_due(state: ClusterState, now_s: float) -> bool:
    return now_s - state.sending.refreshed_at_s >= state.rules.refresh_every_s


def _oldest(state: ClusterState, now_s: float) -> dict[str, None]:
    """Places of the workers that were reported longest ago, if it is time to report them again."""
    if not _is_refresh_due(state, now_s):
        return {}
    workers = state.reported.workers
    return dict.fromkeys(uid_of(worker) for worker in islice(workers, len(workers) // REFRESHED_PART + 1))


def _frame(
    state: ClusterState,
    seq: int,
    workers: Iterable[WorkerObservation],
    nodes: Iterable[NodeObservation],
    keeps: dict[JobName, int],
) -> ClusterHeartbeat:
    return ClusterHeartbeat(
        cluster=state.cluster,
        incarnation=state.incarnation,
        seq=seq,
        region=state.region,
        workers=tuple(workers),
        nodes=tuple(nodes),
        keeps=keeps,
    )


def _keeps(state: ClusterState) -> dict[JobName, int]:
    return {job: wanted.count for job, wanted in state.wanted.items() if wanted.count}


def _digest_of(reported: Reported) -> int:
    digest = 0
    for worker, version in reported.workers.items():
        digest ^= digest_mark("worker", worker, version)
    for node, version in reported.nodes.items():
        digest ^= digest_mark("node", node, version)
    for job, count in reported.keeps.items():
        digest ^= digest_mark("keep", job, count)
    return digest


class _Draft:
    """The master's view after a report of changes, built from its view before."""

    def __init__(self, before: Reported, seq: int) -> None:
        self.forgotten: dict[WorkerId, None] = {}
        self.forgotten_nodes: list[str] = []
        self._seq = seq
        self._workers = dict(before.workers)
        self._nodes = dict(before.nodes)
        self._kept = before.keeps
        self._listed = dict(before.listed)
        self._digest = before.digest

    def list_place(self, uid: str, worker: WorkerId | None) -> None:
        before = self._listed.pop(uid, None)
        if before is not None and before != worker:
            self.forget_workers([before])
        if worker is not None:
            self._listed[uid] = worker

    def name_workers(self, workers: Iterable[WorkerId]) -> None:
        for worker in workers:
            self.forgotten.pop(worker, None)
            self._flip("worker", worker, self._workers.pop(worker, None))
            self._workers[worker] = self._seq
            self._flip("worker", worker, self._seq)

    def forget_workers(self, workers: Iterable[WorkerId]) -> None:
        for worker in workers:
            version = self._workers.pop(worker, None)
            if version is not None:
                self._flip("worker", worker, version)
                self.forgotten[worker] = None

    def name_nodes(self, named: Iterable[str], lost: Iterable[str]) -> None:
        for node in named:
            self._flip("node", node, self._nodes.pop(node, None))
            self._nodes[node] = self._seq
            self._flip("node", node, self._seq)
        for node in lost:
            version = self._nodes.pop(node, None)
            if version is not None:
                self._flip("node", node, version)
                self.forgotten_nodes.append(node)

    def keep(self, keeps: dict[JobName, int]) -> dict[JobName, int]:
        """Stores the new counts. Returns the jobs whose count changed."""
        changed = {job: keeps.get(job, 0) for job in {**self._kept, **keeps} if self._kept.get(job) != keeps.get(job)}
        for job in changed:
            self._flip("keep", job, self._kept.get(job))
            self._flip("keep", job, keeps.get(job))
        self._kept = keeps
        return changed

    def reported(self, steps: dict[JobName, int]) -> Reported:
        return Reported(self._workers, self._nodes, self._kept, steps, self._listed, self._digest)

    def _flip(self, kind: str, name: str, version: int | None) -> None:
        if version is not None:
            self._digest ^= digest_mark(kind, name, version)


def _reported_no_longer(state: ClusterState, now_s: float) -> Iterator[Gone]:
    """Yields gone workers that are no longer reported, oldest first. The first reported one ends the search."""
    for gone in state.gone.values():
        if is_reported(state, gone, now_s):
            return
        yield gone


def _without_old_gone(state: ClusterState, now_s: float) -> ClusterState:
    old = [gone.worker for gone in _reported_no_longer(state, now_s)]
    if len(old) <= state.rules.gone_saved_at_most and len(state.gone) <= state.rules.gone_at_most:
        return state
    kept = {gone.worker for gone in newest_gone(state)}
    state = state.own("gone")
    for worker in old:
        if worker not in kept:
            del state.gone[worker]
    return state
