"""Rules for silent controllers: when a failure to start counts, and when it is over. Pure.

Nodes may be unable to pull the controller's image. Without a controller no worker starts, so no nodes should be
requested for the cluster.
"""

from dataclasses import dataclass, replace

from msgspec import structs

from controlplane.capacity.start_policy import PullHint, counts, explain
from controlplane.clouds.outcomes import with_hint
from messages.clusters import StartFailure
from messages.events import FLEET, Event
from messages.ids import ClusterName
from runtime.decision import Decision

LOOKS = 3
"""Consecutive looks without a failure after which it is over. A single look may have got no answer."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The silence of one cluster's controller."""

    cluster: ClusterName
    began_s: float
    failure: StartFailure | None = None
    """The newest failure that was found."""
    missed: int = 0
    """Consecutive looks that found no failure."""
    announced: str = ""
    """The hint of the last announcement."""
    is_over: bool = False
    """Set when the controller was heard or no failure is known."""


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A look at the controller's pod."""

    at_s: float
    failure: StartFailure | None
    """Why the pod cannot start, without an age; None if nothing is known."""
    heard_s: float | None
    """When the controller was last heard."""


@dataclass(frozen=True, slots=True)
class Block:
    """Stop requests in a cluster for a while."""

    cluster: ClusterName
    detail: str
    hint: str


@dataclass(frozen=True, slots=True)
class Announce:
    event: Event


SilenceEffect = Block | Announce


def decide(silence: Silence, seen: PodSeen, pull_hint: PullHint) -> Decision[Silence, SilenceEffect]:
    silence = _learn(silence, seen)
    if silence.is_over or silence.failure is None:
        return Decision(silence)
    failure = structs.replace(silence.failure, for_s=seen.at_s - silence.began_s)
    if not counts(failure):
        return Decision(silence)
    detail, hint = explain(failure, pull_hint)
    block = Block(silence.cluster, controller_failed(detail), hint)
    if hint == silence.announced:
        return Decision(silence, (block,))
    text = f"the controller of cluster {silence.cluster} cannot start"
    event = Event(FLEET, "controller_failed", text, with_hint(detail, hint), {"cluster": silence.cluster})
    return Decision(replace(silence, announced=hint), (block, Announce(event)))


def controller_failed(detail: str) -> str:
    """The reason why no nodes are requested in a cluster whose controller fails."""
    return f"its controller cannot start: {detail}"


def _learn(silence: Silence, seen: PodSeen) -> Silence:
    failure = seen.failure or silence.failure
    missed = 0 if seen.failure is not None else silence.missed + 1
    was_heard = (seen.heard_s or 0.0) > silence.began_s
    return replace(silence, failure=failure, missed=missed, is_over=failure is None or missed >= LOOKS or was_heard)
