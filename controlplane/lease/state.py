"""What one master knows about the lease."""

import math
from dataclasses import dataclass
from enum import StrEnum

from messages.ids import Epoch


class Phase(StrEnum):
    STANDBY = "standby"
    LEADER = "leader"
    LOST = "lost"
    """No longer the leader; until its work has ended, it does not acquire the lease again."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    ttl_s: int = 2
    """Seconds that the key lives after a write; the bus accepts only whole seconds."""
    margin_s: float = 0.4
    """Seconds before the key expires at which a leader without a renewal stops, by its own clock."""
    retry_s: float = 0.1
    """Seconds between attempts after a failure, and between reads of an overdue key."""
    answer_s: float = 0.5
    """Seconds that the shell waits for an answer."""
    stuck_after_s: float = 10.0
    """Seconds without a pulse of the main loop after which the lease is neither acquired nor renewed."""

    @property
    def renew_every_s(self) -> float:
        return self.ttl_s / 3

    @property
    def overdue_s(self) -> float:
        """Seconds without a renewal after which the holder has stopped, even if the bus still has the key."""
        return self.ttl_s + self.margin_s


@dataclass(frozen=True, slots=True)
class Key:
    revision: int
    """Revision for compare-and-set; 0 if the key does not exist."""
    holder: str | None
    """None: expired, deleted, or never written."""
    since_s: float
    """When this revision was first seen."""


class Ask(StrEnum):
    ACQUIRE = "acquire"
    RENEW = "renew"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    ask: Ask
    sent_s: float


@dataclass(frozen=True, slots=True)
class Lease:
    holder: str
    """Unique name of this process."""
    settings: LeaseSettings
    phase: Phase = Phase.STANDBY
    epoch: Epoch | None = None
    """The revision at which the lease was acquired."""
    revision: int = 0
    """Revision of this process's newest write."""
    renewed_s: float = 0.0
    """When the newest answered write was sent: the key lives at least `ttl_s` from then."""
    key: Key | None = None
    """None: unknown."""
    newest: int = 0
    """The highest revision seen."""
    attempt: Attempt | None = None
    attempts: int = 0
    retry_s: float | None = None
    must_read: bool = False
    """The known key may be outdated."""
    pulse_s: float = -math.inf
    """When the main loop last showed that it runs, as of the newest Ticked."""
    connected: bool = True
    why: str = ""

    @property
    def held_until_s(self) -> float:
        """Until when no other master can hold the lease."""
        return self.renewed_s + self.settings.ttl_s - self.settings.margin_s

    def may_act(self, now_s: float) -> bool:
        """True while this process leads. Check it right before acting: a paused process may not know that it lost."""
        return self.phase is Phase.LEADER and now_s < self.held_until_s

    def is_stuck(self, now_s: float) -> bool:
        """True if the main loop has shown no pulse for `stuck_after_s`, so that it could not lead."""
        return now_s >= self.pulse_s + self.settings.stuck_after_s


def new_lease(holder: str, settings: LeaseSettings | None = None) -> Lease:
    return Lease(holder, settings or LeaseSettings(), why="lease not read yet")
