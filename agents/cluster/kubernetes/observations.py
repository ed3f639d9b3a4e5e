"""Observations of nodes and workers' pods, read from objects of the API. Pure: callers pass the time."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from agents.clouds.interface import NodeTraits
from agents.cluster.kubernetes.manifest import AGENT_CONTAINER, HOST_CONTAINER, UID_LABEL
from agents.cluster.state import WHY_AT_MOST
from messages.clusters import CONTAINER_FAILURES, UNSCHEDULABLE, NodeObservation, StartFailure
from messages.ids import JobName, is_name
from messages.labels import JOB_LABEL, NOTICE_ANNOTATION, NOTICE_BOOT_ANNOTATION, NOTICE_WHY_ANNOTATION, POOL_LABEL
from runtime.kubernetes.objects import Condition, Node, Pod, PodStatus, Terminated

ZONE_LABEL = "topology.kubernetes.io/zone"
STALE_NOTICE_S = 300.0
"""Seconds after its deadline until a notice without a boot id is that of an earlier machine."""
NODE_NOTICE_AT_MOST_S = 3600.0
"""Seconds to which the notice of a node is shortened."""
DRAIN_S = 60.0
"""Seconds that workers have on a cordoned node. Evicted pods have their own deadlines."""
GOING_TAINTS = ("node.cloudprovider.kubernetes.io/shutdown", "ToBeDeletedByClusterAutoscaler")
"""Keys of taints with which Kubernetes marks nodes that will be terminated; a cloud may have more."""
DETAIL_AT_MOST = 400
"""Characters of a failure to start. A longer text keeps its start and its end, where the cause is."""
_EMPTY_BACKOFF = re.compile(r'^Back-off pulling image "[^"]*"$')
"""Kubelets before 1.32 do not repeat why a pull failed."""
STARTING = "its pod is being started"
UNREPORTED = "the node has not reported whether it is ready"
_PLAIN_REASONS = ("Error", "Completed", None)


class Stage(StrEnum):
    WAITING = "waiting"
    """The worker cannot have sent anything yet."""
    RUNNING = "running"
    ABANDONED = "abandoned"
    """The agent has ended; another container has not."""
    HOSTLESS = "hostless"
    """The host has ended and will not be restarted; the agent runs and may not know it."""
    ENDED = "ended"
    """All containers have ended for good."""


@dataclass(frozen=True, slots=True)
class PodObservation:
    """The state of a place, read from its pod."""

    uid: str
    """Uid of the place and name of the pod."""
    pod_uid: str
    job: JobName
    stage: Stage
    node: str = ""
    why: str = ""
    """What the pod waits for, or how it ended."""
    scheduled_at: datetime | None = None
    deleted_at: datetime | None = None
    """When the grace of a deleted pod is over."""
    failure: StartFailure | None = None
    """Why the pod cannot start, without the failure's age."""


def read_node(node: Node, traits: NodeTraits, now_unix_s: float, shutdown_grace_s: float) -> NodeObservation:
    """Reads a node. `shutdown_grace_s` is left if a node announces its shutdown without a deadline."""
    labels = node.metadata.labels or {}
    job = labels.get(JOB_LABEL, "")
    ready = _condition(node.status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    notice_s, notice_why = _notice(node, ready, traits, now_unix_s, shutdown_grace_s)
    cordoned = notice_s is None and bool(node.spec.unschedulable)
    if cordoned:
        notice_s, notice_why = DRAIN_S, "cordoned, to be drained"
    return NodeObservation(
        node.metadata.name,
        uid=node.metadata.uid,
        zone=labels.get(ZONE_LABEL, ""),
        pool=labels.get(POOL_LABEL) or labels.get(traits.pool_label, ""),
        job=JobName(job) if is_name(job) else None,
        ready=is_ready,
        was_ready=ready is not None and ready.status == "Unknown",
        why=notice_why or ("" if is_ready else _message(ready)),
        notice_s=notice_s,
        cordoned=cordoned,
    )


def read_pod(pod: Pod) -> PodObservation | None:
    """Reads a worker's pod. Returns None if the labels are not those of a worker."""
    metadata, labels = pod.metadata, pod.metadata.labels or {}
    job, uid = labels.get(JOB_LABEL, ""), labels.get(UID_LABEL, "")
    if uid != metadata.name or not is_name(uid) or not is_name(job):
        return None
    stage, why = _stage(pod.status)
    scheduled = _condition(pod.status.conditions, "PodScheduled")
    placed = scheduled is not None and scheduled.status == "True"
    return PodObservation(
        uid,
        metadata.uid,
        JobName(job),
        stage,
        node=pod.spec.node_name or "",
        why=why[:WHY_AT_MOST],
        scheduled_at=scheduled.last_transition_time if scheduled is not None and placed else None,
        deleted_at=metadata.deletion_timestamp,
        failure=_failure(pod) if stage in (Stage.WAITING, Stage.RUNNING) else None,
    )


def _notice(
    node: Node, ready: Condition | None, traits: NodeTraits, now_unix_s: float, shutdown_grace_s: float
) -> tuple[float | None, str]:
    """Returns the seconds until the machine is gone, and why. The earliest known deadline counts."""
    announced_s, why = _announced(node, now_unix_s)
    if ready is not None and ready.status == "False" and "shutting down" in (ready.message or ""):
        if announced_s is None or announced_s > shutdown_grace_s:
            return shutdown_grace_s, _message(ready)
        return announced_s, why
    going_taints = (*GOING_TAINTS, *traits.going_taints)
    going = next((taint.key for taint in node.spec.taints or () if taint.key in going_taints), None)
    if announced_s is None and going is not None:
        return shutdown_grace_s, f"tainted {going}"
    return announced_s, why


def _announced(node: Node, now_unix_s: float) -> tuple[float | None, str]:
    """Returns the seconds of the notice that this machine's notice watcher wrote, and why."""
    annotations = node.metadata.annotations or {}
    deadline_unix_s = _seconds(annotations.get(NOTICE_ANNOTATION, ""))
    if deadline_unix_s is None or not deadline_unix_s > now_unix_s - STALE_NOTICE_S:
        return None, ""
    meant, booted = annotations.get(NOTICE_BOOT_ANNOTATION), node.status.node_info.boot_id
    if meant and booted and meant != booted:
        return None, ""
    remaining_s = round(min(max(0.0, deadline_unix_s - now_unix_s), NODE_NOTICE_AT_MOST_S), 3)
    return remaining_s, annotations.get(NOTICE_WHY_ANNOTATION) or "the machine will be terminated"


def _seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _stage(status: PodStatus) -> tuple[Stage, str]:
    containers = status.container_statuses or ()
    waits_for = _what_it_waits_for(status)
    if status.phase in ("Succeeded", "Failed"):
        return Stage.ENDED, _how_it_ended(status)
    agent = next((container.state for container in containers if container.name == AGENT_CONTAINER), None)
    if agent is not None and agent.terminated is not None:
        return Stage.ABANDONED, _exit(AGENT_CONTAINER, agent.terminated)
    host = next((container.state for container in containers if container.name == HOST_CONTAINER), None)
    if agent is not None and agent.running is not None and host is not None and host.terminated is not None:
        return Stage.HOSTLESS, _exit(HOST_CONTAINER, host.terminated)
    if agent.running is not None if agent is not None else status.phase != "Pending":
        return Stage.RUNNING, waits_for
    return Stage.WAITING, waits_for or STARTING


def _how_it_ended(status: PodStatus) -> str:
    by = ": ".join(part for part in (status.reason, status.message) if part)
    every = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    ended = [(each.name, each.state.terminated) for each in every if each.state.terminated is not None]
    failed = [(name, how) for name, how in ended if how.exit_code]
    if not ended:
        return pod_ended(by) if by else "its pod has ended"
    # A container that ran out of memory explains the failure of the one beside it.
    name, how = min(failed or ended, key=lambda each: each[1].reason in _PLAIN_REASONS)
    return pod_ended(by) if by else _exit(name, how)


def _exit(name: str, how: Terminated) -> str:
    reason = how.reason or "" if how.reason not in _PLAIN_REASONS else ""
    lines = [line.strip() for line in (how.message or "").splitlines() if line.strip()]
    return container_exited(name, how.exit_code, reason, lines[-1] if lines and how.exit_code else "")


def container_exited(name: str, code: int, reason: str = "", last_line: str = "") -> str:
    text = f"its container {name} exited with {code}" + (f" ({reason})" if reason else "")
    return f"{text}: {last_line}" if last_line else text


def pod_ended(by: str) -> str:
    return f"its pod ended: {by}"


def _what_it_waits_for(status: PodStatus) -> str:
    scheduled = _condition(status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return _message(scheduled)
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting
        if waiting is not None:
            return f"{container.name}: " + ": ".join(part for part in (waiting.reason, waiting.message) if part)
    return ""


def _failure(pod: Pod) -> StartFailure | None:
    status, node = pod.status, pod.spec.node_name or ""
    scheduled = _condition(status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == UNSCHEDULABLE:
        return StartFailure(UNSCHEDULABLE, _shortened(scheduled.message or ""))
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in CONTAINER_FAILURES:
            detail = "" if _EMPTY_BACKOFF.match(waiting.message or "") else waiting.message or ""
            return StartFailure(waiting.reason, _shortened(detail), container.image, node)
    return None


def _shortened(text: str) -> str:
    half = DETAIL_AT_MOST // 2
    return text if len(text) <= DETAIL_AT_MOST else f"{text[:half]}…{text[-half:]}"


def _condition(conditions: tuple[Condition, ...] | None, kind: str) -> Condition | None:
    return next((condition for condition in conditions or () if condition.type == kind), None)


def _message(condition: Condition | None) -> str:
    if condition is None:
        return UNREPORTED
    return ": ".join(part for part in (condition.reason, condition.message) if part)[:WHY_AT_MOST]
