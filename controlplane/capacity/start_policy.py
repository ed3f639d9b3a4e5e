"""Rules for workers that cannot start: which failures of a topology count, and what a person can do."""

import re
from collections.abc import Callable
from enum import StrEnum

from controlplane.allocator.events import StartsSeen
from messages.clusters import (
    BAD_IMAGES,
    PULL_FAILURES,
    UNSCHEDULABLE,
    ClusterHeartbeat,
    Presence,
    StartFailure,
    WorkerObservation,
)
from messages.ids import ClusterName, JobName
from messages.workers import WorkerPhase

SURE_AFTER_S = 15.0
"""Seconds until a failure that only a person can repair counts."""
LIKELY_AFTER_S = 90.0
"""Seconds until any other failure counts: registries have short outages."""
UNSCHEDULABLE_AFTER_S = 600.0
"""Seconds until a ready node without room for a worker counts. The installation of GPU drivers takes minutes."""

PullHint = Callable[[str], str]
"""Explains how to let nodes pull an image that its registry refuses; may be empty."""


class Cause(StrEnum):
    FORBIDDEN = "forbidden"
    MISSING = "missing"
    OTHER_PLATFORM = "other_platform"
    BAD_NAME = "bad_name"
    UNSCHEDULABLE = "unschedulable"
    OTHER = "other"


_CAUSES = (
    (
        Cause.OTHER,
        r"\b(429|5\d\d)\b [A-Z]|toomanyrequests|timeout|timed out|deadline exceeded|connection (refused|reset)"
        r"|no such host|temporary failure|\bEOF\b",
    ),
    (
        Cause.FORBIDDEN,
        r"\b(401|403)\b|unauthorized|forbidden|denied|authorization failed|failed to (authorize|fetch \w+ token)",
    ),
    (Cause.OTHER_PLATFORM, r"no match(ing manifest)? for platform|no matching manifest"),
    (Cause.MISSING, r"not found|manifest unknown|does not exist"),
)
"""Patterns in order. Temporary errors come first: a token that cannot be fetched now is not a missing permission."""
_CAUSE_PATTERNS = tuple((cause, re.compile(pattern, re.IGNORECASE)) for cause, pattern in _CAUSES)
_WRAPPING = re.compile(r'^(Back-off pulling image "[^"]*": )?(ErrImagePull: )?(rpc error: code = \w+ desc = )?')


def cause_of(failure: StartFailure) -> Cause:
    if failure.reason == UNSCHEDULABLE:
        return Cause.UNSCHEDULABLE
    if failure.reason in BAD_IMAGES:
        return Cause.BAD_NAME
    if failure.reason not in PULL_FAILURES:
        return Cause.OTHER
    return next((cause for cause, pattern in _CAUSE_PATTERNS if pattern.search(failure.detail)), Cause.OTHER)


def counts(failure: StartFailure) -> bool:
    """Check whether a failure has lasted long enough to act on it."""
    return failure.for_s >= (LIKELY_AFTER_S if cause_of(failure) is Cause.OTHER else SURE_AFTER_S)


def explain(failure: StartFailure, pull_hint: PullHint) -> tuple[str, str]:
    """What is wrong, and what a person can do."""
    image, said = failure.image, _WRAPPING.sub("", failure.detail).strip()
    match cause_of(failure):
        case Cause.FORBIDDEN:
            hint = pull_hint(image) or "list a secret for its registry in `pods.pull_secrets` of the fleet file"
            return f"nodes may not pull the image {image}, or its repository does not exist ({_last(said)})", hint
        case Cause.MISSING:
            return f"the image {image} does not exist", "push it, or correct `image` in the job file or the fleet file"
        case Cause.OTHER_PLATFORM:
            return f"the image {image} has no variant for the nodes' platform", "build it for linux/amd64"
        case Cause.BAD_NAME:
            return f"the image {image} cannot be used ({failure.reason})", "correct its name and its pull policy"
        case Cause.UNSCHEDULABLE:
            return f"pods do not fit on ready nodes ({said})", "request less CPU or memory, or a larger machine"
        case Cause.OTHER if failure.reason in PULL_FAILURES:
            return (
                f"the image {image} cannot be pulled ({said})",
                "check that nodes can reach its registry; docs/fleet.md describes what private nodes need",
            )
        case _:
            hint = "create the missing object in the namespace `pods.namespace` of the cluster, or correct the job file"
            return f"the pod cannot be created ({failure.reason}: {said})", hint


class Starts:
    """How the workers of one job start in each cluster."""

    def __init__(self, job: JobName, pull_hint: PullHint) -> None:
        self._job = job
        self._pull_hint = pull_hint
        self._unused_s: dict[tuple[str, str], float] = {}
        """Monotonic seconds from which a ready node has no worker although some find no room, by cluster and node."""
        self._failed: set[ClusterName] = set()
        """Clusters in which workers failed to start. Their starts are reported from then on."""

    def see(self, topology: ClusterHeartbeat, now_s: float) -> StartsSeen | None:
        """The starts of the job's workers in a cluster; None if none of them ever failed to start."""
        workers = [
            observation
            for observation in topology.workers
            if observation.job == self._job and observation.presence is not Presence.GONE
        ]
        failures = [observation.start_failure for observation in workers if observation.start_failure is not None]
        placed = [each for each in failures if each.node and counts(each)]
        unplaced = [each for each in failures if cause_of(each) is Cause.UNSCHEDULABLE]
        failing = {each.node: each.for_s for each in placed}
        unused = self._unused(topology, workers, now_s) if unplaced else {}
        failing |= unused
        if failing:
            self._failed.add(topology.cluster)
        if topology.cluster not in self._failed:
            return None
        reported = [*placed, *(unplaced if unused else ())]
        worst = max(reported, key=lambda each: each.for_s, default=None)
        detail, hint = explain(worst, self._pull_hint) if worst is not None else ("", "")
        started = frozenset(
            observation.status.node
            for observation in workers
            if observation.status is not None and has_started(observation) and observation.status.node
        )
        return StartsSeen(now_s, topology.cluster, tuple(failing.items()), started, detail, hint)

    def _unused(self, topology: ClusterHeartbeat, workers: list[WorkerObservation], now_s: float) -> dict[str, float]:
        """Ready nodes of the job that had no worker for `UNSCHEDULABLE_AFTER_S`, with their seconds.

        A worker that has neither reported nor failed may be on any of them, so then no node counts.
        """
        known = {key: since_s for key, since_s in self._unused_s.items() if key[0] == topology.cluster}
        used = {observation.status.node for observation in workers if observation.status is not None}
        used |= {observation.start_failure.node for observation in workers if observation.start_failure is not None}
        is_unsure = any(observation.status is None and observation.start_failure is None for observation in workers)
        free = [
            (topology.cluster, node.node)
            for node in topology.nodes
            if node.job == self._job and node.ready and node.notice_s is None and node.node not in used
        ]
        others = {key: since_s for key, since_s in self._unused_s.items() if key[0] != topology.cluster}
        now = {} if is_unsure else {key: known.get(key, now_s) for key in free}
        self._unused_s = others | now
        return {name: now_s - since_s for (_, name), since_s in now.items() if now_s - since_s >= UNSCHEDULABLE_AFTER_S}


def has_started(observation: WorkerObservation) -> bool:
    warming = (WorkerPhase.WARMING, WorkerPhase.LEAVING)
    return (
        observation.status is not None and observation.status.phase not in warming and observation.start_failure is None
    )


def _last(said: str) -> str:
    """The last error of a chain, which is the cause."""
    return said.rpartition(": ")[2][:100] or "access denied"
