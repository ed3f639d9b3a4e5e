"""Whether a silent controller cannot start, when that counts, and when it is over. Pure.

Nodes may be unable to pull the controller's image. Without a controller no worker starts, so nothing should be bought
for the cluster either.
"""

from dataclasses import dataclass, replace

from msgspec import structs

from controlplane.capacity.starts import PullHint, counts, explain
from controlplane.clouds.outcomes import with_hint
from messages.clusters import StartFailure
from messages.events import FLEET, Event
from messages.ids import ClusterName
from runtime.decision import Decision

LOOKS = 3
"""Looks in a row that must find nothing before a failure counts as over: a single one may have got no answer."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The silence of one cluster's controller."""

    cluster: ClusterName
    began_s: float
    failure: StartFailure | None = None
    """The newest that was found."""
    missed: int = 0
    """Looks in a row that found nothing."""
    announced: str = ""
    """What people were last advised to do."""
    is_over: bool = False
    """The controller was heard, or cannot be said to fail."""


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
    """Stops requests in a cluster for a while."""

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
    block = Block(silence.cluster, f"its controller cannot start: {detail}", hint)
    if hint == silence.announced:
        return Decision(silence, (block,))
    text = f"the controller of cluster {silence.cluster} cannot start"
    event = Event(FLEET, "controller_failed", text, with_hint(detail, hint), {"cluster": silence.cluster})
    return Decision(replace(silence, announced=hint), (block, Announce(event)))


def _learn(silence: Silence, seen: PodSeen) -> Silence:
    failure = seen.failure or silence.failure
    missed = 0 if seen.failure is not None else silence.missed + 1
    was_heard = (seen.heard_s or 0.0) > silence.began_s
    return replace(silence, failure=failure, missed=missed, is_over=failure is None or missed >= LOOKS or was_heard)
