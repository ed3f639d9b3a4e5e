"""The certificate of a run: proof that it lost, repeated and exchanged no samples.

Each rank computes a digest of the dataset indices that it really read. Digests are sums, so the all-reduce of the
gradients adds them up. Every committed step compares the result with the digest of the samples that belong to it.
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
"""Number of indices up to which a Python loop is faster than a call of torch."""


@dataclass(frozen=True, slots=True)
class Digest:
    """A number of samples, and the sum of their mixed indices modulo 2⁴⁸.

    Ranks send it as four lanes of 12 bits, each a float: the lanes of 4096 ranks add up exactly in float32.
    """

    count: int = 0
    mix: int = 0

    @classmethod
    def of(cls, indices: Sequence[int]) -> "Digest":
        mixed = _mixed(indices) if len(indices) <= _FEW else _mixed_by_torch(indices)
        return cls(len(indices), mixed & _MASK)

    @classmethod
    def from_lanes(cls, count: int, lanes: Sequence[float]) -> "Digest":
        """Makes a digest of the lanes of one rank, or of the sums of many ranks' lanes."""
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
    """One life of a run: from its start, or a resume, until all ranks lost their memory."""

    first: int
    """Its first step."""
    end: int
    """Steps below this one were committed."""


@dataclass(slots=True)
class Certificate:
    """Proof of a run's samples. Every rank holds it; checkpoints and joining ranks get it with the state."""

    steps: int = 0
    samples: int = 0
    lost: int = 0
    repeated: int = 0
    wrong: int = 0
    """Steps with the right number of samples, but the wrong samples."""
    first_bad: int | None = None
    """The first step with lost, repeated or wrong samples."""
    recomputed: int = 0
    """Committed steps that all ranks lost with their memory and computed again, counted each time.

    The weights have seen their samples once, so they are neither lost nor repeated; the work was done twice.
    """
    nonfinite: int = 0
    """Steps in which some rank's loss or gradient was NaN or infinite."""
    skipped: int = 0
    """Steps whose samples were used and whose gradient was not applied, because it was not finite."""
    skipped_in_a_row: int = 0
    """Number of consecutive skipped steps at the end."""
    resumed_at: tuple[int, ...] = ()
    covers_from: int = 0
    due: int = 0
    """The step to be committed next."""
    counted_to: int = 0
    """Steps below this one are in `steps` and `samples`; recomputed steps are not counted again."""
    committed_to: int = 0
    """Steps below this one were committed before the last resume."""

    @property
    def holds(self) -> bool:
        return self.lost == self.repeated == self.wrong == 0

    def check(self, step: int, summed: Digest, expected: Digest) -> bool:
        """Checks a committed step; called for each in turn. False unless it has exactly the expected samples, once."""
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
        self.recomputed += step < self.committed_to
        if step >= self.counted_to:
            self.steps += 1
            self.samples += summed.count
            self.counted_to = step + 1
        return good

    def resumed(self, from_step: int, lives: Sequence[Life]) -> None:
        """Records a resume at a step: the run recomputes later steps that any of the `lives` committed.

        Only the lives show what happened after the checkpoint, other resumes included.
        """
        if self.steps == 0 and self.due == 0:
            self.covers_from = self.counted_to = from_step
        resumes, again, end = _resumes(lives)
        self.due = from_step
        self.committed_to = max(self.committed_to, end, self.counted_to)
        self.recomputed = max(self.recomputed, again)
        self.resumed_at = (*max(self.resumed_at, resumes, key=len), from_step)

    def as_dict(self) -> dict[str, Any]:
        """Returns all fields, for JSON and checkpoints."""
        return {**asdict(self), "resumed_at": list(self.resumed_at), "holds": self.holds}

    def reported(self) -> dict[str, int | str]:
        """The numbers and the message that are reported to the agent."""
        return {
            "steps": self.steps,
            "samples": self.samples,
            "lost": self.lost,
            "repeated": self.repeated,
            "wrong": self.wrong,
            "recomputed": self.recomputed,
            "nonfinite": self.nonfinite,
            "skipped": self.skipped,
            "message": self.message(),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Certificate":
        known = {field.name: saved[field.name] for field in fields(cls) if field.name in saved}
        return cls(**{**known, "resumed_at": tuple(known.get("resumed_at", ()))})

    def take_over(self, other: "Certificate") -> None:
        """Takes all values of another rank's or a checkpoint's certificate."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def message(self) -> str:
        covered = f" from step {self.covers_from:,} on" if self.covers_from else ""
        reported = (
            f"{_steps(self.steps)}{covered}, {self.samples:,} samples: {self.lost:,} lost, {self.repeated:,} repeated"
        )
        if self.wrong:
            reported += f", {_steps(self.wrong)} with wrong samples"
        if self.first_bad is not None:
            reported += f", first at step {self.first_bad:,}"
        if self.nonfinite:
            reported += f"; {_steps(self.nonfinite)} with a loss or gradient that was not finite"
        if self.skipped:
            reported += f"; {_steps(self.skipped)} skipped"
        if self.resumed_at:
            resumes = ", ".join(f"{step:,}" for step in self.resumed_at)
            once = len(self.resumed_at) == 1
            if self.recomputed:
                after = "a resume at step" if once else f"{len(self.resumed_at)} resumes at steps"
                reported += f"; {_steps(self.recomputed)} recomputed after {after} {resumes}"
            else:
                reported += f"; resumed at {'step' if once else 'steps'} {resumes}"
        return reported


class Audit:
    """Checks each committed step against the order of samples."""

    def __init__(self, certificate: Certificate, indices: Callable[[int], Sequence[int]]) -> None:
        """`indices` returns the indices of a step's global batch."""
        self._certificate = certificate
        self._indices = indices

    def check(self, step: int, read: Digest) -> None:
        """`read` is the digest of the samples that all ranks together really read."""
        self._certificate.check(step, read, Digest.of(self._indices(step)))


def _mixed(indices: Sequence[int]) -> int:
    """Sums the mixed indices. Two multiplications and folds move near indices far apart."""
    mix = 0
    for index in indices:
        word = (index + _OFFSET) * _FACTORS[0] & _WORD
        word = (word ^ word >> _FOLDS[0]) * _FACTORS[1] & _WORD
        mix += word ^ word >> _FOLDS[1]
    return mix


def _mixed_by_torch(indices: Sequence[int]) -> int:
    """Computes `_mixed` modulo 2⁶⁴ with torch. Its integers are signed: a mask removes the sign bits of each shift."""
    import torch  # reading certificates needs no torch

    words = torch.frombuffer(array("q", indices), dtype=torch.int64).add_(_OFFSET)
    for factor, fold in zip(_FACTORS, _FOLDS, strict=True):
        words.mul_(factor)
        words ^= (words >> fold) & (_WORD >> fold)
    return int(words.sum())


def _resumes(lives: Sequence[Life]) -> tuple[tuple[int, ...], int, int]:
    """Returns the first steps of all lives but the first, the number of recomputed steps, and the farthest end."""
    again = end = 0
    for life in lives:
        again += max(0, min(life.end, end) - life.first)
        end = max(end, life.end)
    return tuple(life.first for life in lives[1:]), again, end


def _steps(number: int) -> str:
    return f"{number:,} step" + ("" if number == 1 else "s")
