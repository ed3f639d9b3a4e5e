"""Everything a lease may ask of its keeper."""

from dataclasses import dataclass

from messages.ids import Epoch


@dataclass(frozen=True, slots=True)
class ReadKey:
    """Comes back as KeyRead or Unanswered."""

    attempt: int


@dataclass(frozen=True, slots=True)
class WriteKey:
    """Acquires or renews: write this holder, for `ttl_s`, if the key still has this revision (0: if there is none).

    Comes back as Written, Conflicted or Unanswered.
    """

    attempt: int
    revision: int


@dataclass(frozen=True, slots=True)
class Lead:
    """From now on this master acts, with this epoch in everything that it says."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stop acting at once; comes back as WorkEnded."""

    why: str


LeaseEffect = ReadKey | WriteKey | Lead | StepDown
