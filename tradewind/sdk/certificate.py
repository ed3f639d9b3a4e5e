"""What a run can prove about its samples: none lost, none repeated, none exchanged.

Each rank digests the dataset indices that it really read. Digests are sums, so they are added up in band, with the
gradients; every committed step then compares the sum of what was read with what the order of samples asked for.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

LANES: Final = 4
_LANE_BITS: Final = 12
_MASK: Final = (1 << LANES * _LANE_BITS) - 1
_WORD: Final = (1 << 64) - 1
_OFFSET: Final = 0x1E3779B97F4A7C15
_FACTORS: Final = (0x3F58476D1CE4E5B9, 0x14D049BB133111EB)
_FOLDS: Final = (30, 31)
_FEW: Final = 128
"""Up to here torch takes longer to be called than the numbers take to be mixed."""


@dataclass(frozen=True, slots=True)
class Digest:
    """A number of samples, and the sum of their mixed indices modulo 2⁴⁸.

    It travels as four lanes of 12 bits, each a float: the lanes of 4096 ranks add up exactly in float32.
    """

    count: int = 0
    mix: int = 0

    @classmethod
    def of(cls, indices: Sequence[int]) -> "Digest":
        mixed = _mixed(indices) if len(indices) <= _FEW else _mixed_by_torch(indices)
        return cls(len(indices), mixed & _MASK)

    @classmethod
    def from_lanes(cls, count: int, lanes: Sequence[float]) -> "Digest":
        """From the lanes of one rank, or from the sums of the lanes of many."""
        mix = sum(int(lane) << place * _LANE_BITS for place, lane in enumerate(lanes))
        return cls(count, mix & _MASK)

    def lanes(self) -> tuple[float, ...]:
        return tuple(float(self.mix >> place * _LANE_BITS & (1 << _LANE_BITS) - 1) for place in range(LANES))

    def __add__(self, other: "Digest") -> "Digest":
        return Digest(self.count + other.count, (self.mix + other.mix) & _MASK)

    def matches(self, expected: "Digest") -> bool:
        return self == expected


NOTHING_READ: Final = Digest()


@dataclass(frozen=True, slots=True)
class Life:
    """Of a run: from its start, or a resume, until everybody's memory was lost."""

    first: int
    """The step it began with."""
    end: int
    """Steps below were committed."""


@dataclass(slots=True)
class Certificate:
    """Kept by every rank, saved with every checkpoint, and handed to those who join."""

    steps: int = 0
    samples: int = 0
    lost: int = 0
    repeated: int = 0
    wrong: int = 0
    """Steps that took as many samples as they should, but others."""
    first_bad: int | None = None
    """The first step that was not as it should be."""
    taken_again: int = 0
    """Steps that had been committed, went down with everybody's memory, and were taken again: counted each time.

    The weights have seen their samples once, so they are neither lost nor repeated; the work was done twice.
    """
    nonfinite: int = 0
    """Steps in which some rank's loss or gradient was NaN or infinite."""
    skipped: int = 0
    """Steps whose samples were taken and whose gradient was not applied, because it was not finite."""
    skipped_in_a_row: int = 0
    """How many of the last steps in a row were skipped."""
    resumed_at: tuple[int, ...] = ()
    covers_from: int = 0
    due: int = 0
    """The step that has to be committed next."""
    counted_to: int = 0
    """Steps below are in `steps` and `samples`, also if they are taken again."""
    committed_to: int = 0
    """Steps below had been committed before the last resume."""

    @property
    def holds(self) -> bool:
        return self.lost == self.repeated == self.wrong == 0

    def check(self, step: int, summed: Digest, expected: Digest) -> bool:
        """For every committed step, in turn. False if its samples are not exactly those expected, once."""
        good = step == self.due and summed.matches(expected)
        if not good and self.first_bad is None:
            self.first_bad = step
        if step < self.due:
            self.repeated += summed.count
            return False
        self.lost += (step - self.due) * expected.count + max(0, expected.count - summed.count)
        self.repeated += max(0, summed.count - expected.count)
        self.wrong += summed.count == expected.count and not summed.matches(expected)
        self.due = step + 1
        self.taken_again += step < self.committed_to
        if step >= self.counted_to:
            self.steps += 1
            self.samples += summed.count
            self.counted_to = step + 1
        return good

    def resumed(self, from_step: int, lives: Sequence[Life]) -> None:
        """Everybody's state was lost: from here on, whatever any of those lives has committed is taken again.

        What came after the checkpoint, other resumes included, is known from the lives alone.
        """
        if self.steps == 0 and self.due == 0:
            self.covers_from = self.counted_to = from_step
        resumes, again, end = _resumes(lives)
        self.due = from_step
        self.committed_to = max(self.committed_to, end, self.counted_to)
        self.taken_again = max(self.taken_again, again)
        self.resumed_at = (*max(self.resumed_at, resumes, key=len), from_step)

    def as_dict(self) -> dict[str, Any]:
        """For JSON and checkpoints."""
        return {**asdict(self), "resumed_at": list(self.resumed_at), "holds": self.holds}

    def told(self) -> dict[str, int | str]:
        """For whoever watches the run."""
        return {
            "steps": self.steps,
            "samples": self.samples,
            "lost": self.lost,
            "repeated": self.repeated,
            "wrong": self.wrong,
            "taken_again": self.taken_again,
            "nonfinite": self.nonfinite,
            "skipped": self.skipped,
            "says": self.sentence(),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Certificate":
        known = {field.name: saved[field.name] for field in fields(cls) if field.name in saved}
        return cls(**{**known, "resumed_at": tuple(known.get("resumed_at", ()))})

    def take_over(self, other: "Certificate") -> None:
        """Becomes what another rank, or a checkpoint, knows."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def sentence(self) -> str:
        covered = f" from step {self.covers_from:,} on" if self.covers_from else ""
        told = (
            f"{_steps(self.steps)}{covered}, {self.samples:,} samples: {self.lost:,} lost, {self.repeated:,} repeated"
        )
        if self.wrong:
            told += f", {_steps(self.wrong)} with other samples than their own"
        if self.first_bad is not None:
            told += f", first at step {self.first_bad:,}"
        if self.nonfinite:
            told += f"; {_steps(self.nonfinite)} with a loss or gradient that was not finite"
        if self.skipped:
            told += f"; {_steps(self.skipped)} skipped"
        if self.resumed_at:
            resumes = ", ".join(f"{step:,}" for step in self.resumed_at)
            once = len(self.resumed_at) == 1
            if self.taken_again:
                after = "a resume at step" if once else f"{len(self.resumed_at)} resumes at steps"
                told += f"; {_steps(self.taken_again)} taken again after {after} {resumes}"
            else:
                told += f"; resumed at {'step' if once else 'steps'} {resumes}"
        return told


class Audit:
    """Checks each committed step against the order of samples."""

    def __init__(self, certificate: Certificate, indices: Callable[[int], Sequence[int]]) -> None:
        """`indices` are those of the global batch of a step."""
        self._certificate = certificate
        self._indices = indices

    def check(self, step: int, read: Digest) -> None:
        """`read`: the digest of what all ranks together have really read."""
        self._certificate.check(step, read, Digest.of(self._indices(step)))


def _mixed(indices: Sequence[int]) -> int:
    """An odd factor and folding the high bits down, twice: near indices end far apart."""
    mix = 0
    for index in indices:
        word = (index + _OFFSET) * _FACTORS[0] & _WORD
        word = (word ^ word >> _FOLDS[0]) * _FACTORS[1] & _WORD
        mix += word ^ word >> _FOLDS[1]
    return mix


def _mixed_by_torch(indices: Sequence[int]) -> int:
    """The same modulo 2⁶⁴. Its words have signs: the copies of the sign that a shift brings in are masked out."""
    import torch  # whoever only reads certificates needs none

    words = torch.frombuffer(array("q", indices), dtype=torch.int64).add_(_OFFSET)
    for factor, fold in zip(_FACTORS, _FOLDS, strict=True):
        words.mul_(factor)
        words ^= (words >> fold) & (_WORD >> fold)
    return int(words.sum())


def _resumes(lives: Sequence[Life]) -> tuple[tuple[int, ...], int, int]:
    """Where lives after the first began, how many steps they took again, and where the farthest ended."""
    again = end = 0
    for life in lives:
        again += max(0, min(life.end, end) - life.first)
        end = max(end, life.end)
    return tuple(life.first for life in lives[1:]), again, end


def _steps(number: int) -> str:
    return f"{number:,} step" + ("" if number == 1 else "s")
