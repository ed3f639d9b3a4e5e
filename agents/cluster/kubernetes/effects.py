"""Everything that the core of pods may ask its shell for."""

from dataclasses import dataclass

from agents.cluster.events import ClusterEvent
from messages.clusters import WorkerTemplate
from messages.ids import JobName


@dataclass(frozen=True, slots=True)
class Report:
    """Passes a fact on to the core of the cluster-controller."""

    fact: ClusterEvent


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Tried until the API answers with PodCreated or CreateRefused, or until StopCreating."""

    uid: str
    job: JobName
    template: WorkerTemplate


@dataclass(frozen=True, slots=True)
class StopCreating:
    uid: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Tried until it is answered with DeleteAnswered."""

    uid: str
    grace_s: int
    pod_uid: str = ""
    """Deletes only this very pod, not a later one of the same name."""
    within_s: float | None = None
    """Gives up after so many seconds."""


@dataclass(frozen=True, slots=True)
class ReadNode:
    """Tried until it is answered with NodeRead."""

    node: str
    uids: tuple[str, ...]
    """Places whose pods were on it."""


PodEffect = Report | CreatePod | StopCreating | DeletePod | ReadNode
