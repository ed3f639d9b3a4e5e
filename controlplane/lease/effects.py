"""Effects that a lease core requests from its keeper."""

from dataclasses import dataclass

from messages.ids import Epoch


@dataclass(frozen=True, slots=True)
class ReadKey:
    """Reads the key. The result is KeyRead or Unanswered."""

    attempt: int


@dataclass(frozen=True, slots=True)
class WriteKey:
    """Acquires or renews: writes this holder for `ttl_s` if the key still has this revision (0: no key).

    The result is Written, Conflicted or Unanswered.
    """

    attempt: int
    revision: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Starts the leader's work, whose messages all carry this epoch."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stops the leader's work at once. The result is WorkEnded."""

    why: str


LeaseEffect = ReadKey | WriteKey | Lead | StepDown
