"""Everything that the core of pods may request from its shell."""

from dataclasses import dataclass

from agents.cluster.events import ClusterEvent
from messages.clusters import WorkerTemplate
from messages.ids import JobName


@dataclass(frozen=True, slots=True)
class Report:
    """Sends a fact to the core of the cluster-controller."""

    fact: ClusterEvent


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Creates a pod. Retried until PodCreated or CreateRefused answers, or until StopCreating."""

    uid: str
    job: JobName
    template: WorkerTemplate


@dataclass(frozen=True, slots=True)
class StopCreating:
    uid: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Deletes a pod. Retried until DeleteAnswered."""

    uid: str
    grace_s: int
    pod_uid: str = ""
    """If set, deletes only the pod with this uid, not a later pod of the same name."""
    within_s: float | None = None
    """Seconds after which the shell stops retrying."""


@dataclass(frozen=True, slots=True)
class ReadNode:
    """Reads a node. Retried until NodeRead."""

    node: str
    uids: tuple[str, ...]
    """Places whose pods were on the node."""


PodEffect = Report | CreatePod | StopCreating | DeletePod | ReadNode
