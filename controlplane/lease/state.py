"""What one master knows of the lease."""

import math
from dataclasses import dataclass
from enum import StrEnum

from messages.ids import Epoch


class Phase(StrEnum):
    STANDBY = "standby"
    LEADER = "leader"
    LOST = "lost"
    """No longer the leader; what it did as one is being ended, and until then it does not ask for the lease again."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    ttl_s: int = 2
    """How long the key lives after it was written; the bus takes whole seconds."""
    margin_s: float = 0.4
    """So much earlier a leader that could not renew stops, by its own clock, whatever clocks and networks do."""
    retry_s: float = 0.1
    """Pause after a try that failed, and between looks at a key that is overdue."""
    answer_s: float = 0.5
    """How long the shell waits for an answer."""
    stuck_after_s: float = 10.0
    """Seconds without a pulse of the main loop after which the lease is neither acquired nor renewed."""

    @property
    def renew_every_s(self) -> float:
        return self.ttl_s / 3

    @property
    def overdue_s(self) -> float:
        """A key that was not renewed for so long was given up by whoever wrote it, even if the bus still has it."""
        return self.ttl_s + self.margin_s


@dataclass(frozen=True, slots=True)
class Key:
    revision: int
    """To compare with; 0 where there is none."""
    holder: str | None
    """None: expired, deleted, or never written."""
    since_s: float
    """Since when this revision is known."""


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
    """This process, and no other or later one."""
    settings: LeaseSettings
    phase: Phase = Phase.STANDBY
    epoch: Epoch | None = None
    """The revision at which the lease was acquired."""
    revision: int = 0
    """Of this process's newest write."""
    renewed_s: float = 0.0
    """When the newest write that was answered had been sent: the key lives at least `ttl_s` from then."""
    key: Key | None = None
    """None: not known."""
    newest: int = 0
    """The highest revision that was ever seen."""
    attempt: Attempt | None = None
    attempts: int = 0
    retry_s: float | None = None
    must_read: bool = False
    """What is known of the key may be wrong."""
    pulse_s: float = -math.inf
    """When the main loop, which runs the leader's work, last showed that it runs; as of the newest Ticked."""
    connected: bool = True
    why: str = ""

    @property
    def held_until_s(self) -> float:
        """Before anybody else can have it."""
        return self.renewed_s + self.settings.ttl_s - self.settings.margin_s

    def may_act(self, now_s: float) -> bool:
        """To be asked at the moment of acting: a process that was paused may not have heard yet that it lost."""
        return self.phase is Phase.LEADER and now_s < self.held_until_s

    def is_stuck(self, now_s: float) -> bool:
        """Whether the main loop has shown no sign of life for too long: it could not lead."""
        return now_s >= self.pulse_s + self.settings.stuck_after_s


def new_lease(holder: str, settings: LeaseSettings | None = None) -> Lease:
    return Lease(holder, settings or LeaseSettings(), why="not looked yet")
