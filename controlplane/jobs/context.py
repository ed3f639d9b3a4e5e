"""Objects that all parts of one term of a master share."""

from dataclasses import dataclass, field

from controlplane.jobs.announcer import Announcer
from controlplane.jobs.heard_clusters import HeardClusters
from controlplane.lease.keeper import Leadership
from messages.events import FLEET, Event
from runtime.bus import Bucket, Bus
from runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class TermContext:
    bus: Bus
    bucket: Bucket
    announcer: Announcer
    clock: Clock
    leadership: Leadership
    heard: HeardClusters = field(default_factory=HeardClusters)

    def announce(self, event: Event) -> None:
        self.announcer.announce(event)

    def announce_fleet(self, kind: str, text: str, why: str = "", **fields: str | int) -> None:
        """Publishes an event that belongs to no job."""
        self.announce(Event(FLEET, kind, text, why, {**fields, "epoch": self.leadership.epoch}))

    def may_act(self) -> bool:
        """True while this master leads."""
        return self.leadership.may_act()

    def now_s(self) -> float:
        """Current time on the monotonic clock."""
        return self.clock.monotonic_s()
