"""The truth about the steps of live trainers, unknown to the simulated system: claims are checked against it.

Each result of an all-reduce is a unique number. The state of a trainer is the row of results that it received, so two
trainers have the same state if and only if their rows are equal; a step is whole if its samples are exactly the batch.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.clockwork import Broken, Clockwork
from tests.simulation.collectives import Group, Groups
from tradewind.protocol.trainer import Ranges
from tradewind.sdk import control_words
from tradewind.sdk.certificate import Digest
from tradewind.sdk.control_words import Agreed

BATCH = 12
WHOLE = Digest.of(range(BATCH))
CHECKPOINT_EVERY = 5

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's part of the all-reduce of a step."""

    words: list[float]
    row: Row | None
    """None for a rank without the state."""
    samples: Ranges


@dataclass(frozen=True, slots=True)
class Reduced:
    agreed: Agreed
    row: Row
    """Row of the active ranks before this step."""
    made: int


@dataclass
class StepTruth:
    clockwork: Clockwork
    steps: int
    serves: Callable[[int], bool]
    """True if the store at this port is there."""
    committed: Row = ()
    """Results of the steps that all ranks have."""
    checkpoint_row: Row = ()
    failures: int = 0
    steps_taken: int = 0
    over: bool = False
    closing_since_s: float | None = None
    seen: Counter[str] = field(default_factory=Counter)
    """Counts of events by kind."""
    at_switch: Callable[[Group], None] | None = None
    """A fault that waits until trainers are about to switch."""

    def __post_init__(self) -> None:
        self.groups = Groups(self.clockwork, self.serves, self._combine)
        self.groups.seen = self.seen

    @property
    def checkpoint(self) -> int:
        return self.steps if self.over else len(self.checkpoint_row)

    # The truth about each collective.

    def _combine(self, group: Group, kind: str, parts: dict[int, Any]) -> Any:
        if len(group.collectives) == 1 and group.assign.entry == "repair":
            self.seen["repairs"] += 1
        match kind:
            case "start":
                return self._begin()
            case "hand on":
                return parts[group.assign.source]
            case _:
                return self._reduce(group, parts)

    def _begin(self) -> Row:
        """Starts from the checkpoint; later steps are recomputed."""
        self.seen["starts"] += 1
        self.seen["starts after the end"] += self.over
        self.over, self.closing_since_s = False, None
        self.committed = self.checkpoint_row
        return self.checkpoint_row

    def _reduce(self, group: Group, parts: dict[int, Part]) -> Reduced:
        agreed = _agreed(parts, group.size)
        rows = {part.row for part in parts.values() if part.row is not None}
        if len(rows) != 1:
            raise Broken(f"generation {group.generation} adds gradients of different states: {sorted(map(len, rows))}")
        row = rows.pop()
        if agreed.over:
            return Reduced(agreed, row, 0)
        self._check_whole(group, [part.samples for part in parts.values()], len(row), agreed)
        self._commit(row)
        if agreed.ready_generation(group.generation, group.size) is not None:
            self.seen["switches"] += 1
            if self.at_switch is not None:
                fault, self.at_switch = self.at_switch, None
                fault(group)
        return Reduced(agreed, row, self.steps_taken)

    def _check_whole(self, group: Group, samples: list[Ranges], step: int, agreed: Agreed) -> None:
        count = Counter(place for ranges in samples for first, last in ranges for place in range(first, last))
        lost = [place for place in range(BATCH) if not count[place]]
        repeated = [place for place, times in count.items() if times > 1]
        if lost or repeated:
            raise Broken(
                f"step {step} of generation {group.generation}: {len(lost)} samples lost, {len(repeated)} repeated"
            )
        if (agreed.step, agreed.digest) != (step, WHOLE):
            raise Broken(f"step {step} of generation {group.generation} is called {agreed.step} with {agreed.digest}")

    def _commit(self, row: Row) -> None:
        """Commits a row: a rank that contributes to the next step has this one, and so have all."""
        self.steps_taken += 1
        if row[: len(self.committed)] != self.committed[: len(row)]:
            raise Broken(f"a step below {len(row)} was committed twice")
        self.committed = max(row, self.committed, key=len)
        if row and len(row) % CHECKPOINT_EVERY == 0:
            self.checkpoint_row = row


def _agreed(parts: dict[int, Part], size: int) -> Agreed:
    """The control words that all ranks agree on; each rank's end with its own flags."""
    summed = [0.0] * control_words.size(size)
    for part in parts.values():
        for place, word in enumerate(part.words):
            summed[place] += word
    return control_words.decode(summed)
