"""What the demonstration recorded, and what it must show."""

from collections.abc import Iterable
from dataclasses import dataclass

from messages.api import EventLine, ProgressLine
from messages.events import EventKind
from messages.ids import Generation, Rank, WorkerId
from tradewind.demo.cloud.facts import CloudFacts
from tradewind.demo.timeline import Moment


@dataclass(frozen=True, slots=True)
class Promise:
    """What the demonstration must show."""

    steps: int
    workers: int
    global_batch: int
    checkpoint_every: int


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed without notice, with all its processes."""

    worker: WorkerId
    rank: Rank
    generation: Generation
    step: int
    at: float
    """Unix seconds."""
    survived: tuple[int, ...] = ()
    """Its processes that still ran afterwards."""


@dataclass(frozen=True, slots=True)
class Formed:
    """A world that the master announced."""

    generation: Generation
    size: int
    why: str
    entry: str = ""
    """How trainers entered the world; empty if they were started for it."""


@dataclass(frozen=True, slots=True)
class Facts:
    promise: Promise
    phase: str
    """The job's last phase."""
    why: str
    progress: tuple[ProgressLine, ...] = ()
    formed: tuple[Formed, ...] = ()
    traced: tuple[Moment, ...] = ()
    """The traces that the trainers wrote."""
    certificate: str = ""
    """The certificate that the run printed at its end."""
    noticed: frozenset[WorkerId] = frozenset()
    kills: tuple[Kill, ...] = ()
    left_behind: tuple[str, ...] = ()
    """Processes that outlived the demonstration."""
    total_s: float = 0.0
    cloud: CloudFacts | None = None
    """None without a cloud."""

    def size_of(self, generation: Generation) -> int | None:
        return next((world.size for world in self.formed if world.generation == generation), None)

    def entry_of(self, generation: Generation) -> str:
        return next((world.entry for world in self.formed if world.generation == generation), "")


@dataclass(frozen=True, slots=True)
class Trained:
    """What the ranks of one generation reported."""

    generation: Generation
    holders: dict[Rank, frozenset[WorkerId]]
    completed: frozenset[int]
    first_at: float
    last_at: float

    @property
    def members(self) -> frozenset[WorkerId]:
        return frozenset[WorkerId]().union(*self.holders.values())


def by_generation(progress: Iterable[ProgressLine]) -> list[Trained]:
    messages: dict[Generation, list[ProgressLine]] = {}
    for message in progress:
        if message.ranks:
            messages.setdefault(message.generation, []).append(message)
    return [_trained(generation, messages[generation]) for generation in sorted(messages)]


def _trained(generation: Generation, messages: list[ProgressLine]) -> Trained:
    holders: dict[Rank, frozenset[WorkerId]] = {}
    steps: dict[Rank, set[int]] = {}
    for message in messages:
        for rank in message.ranks:
            holders[rank.rank] = holders.get(rank.rank, frozenset()) | {message.worker}
            steps.setdefault(rank.rank, set()).update(range(rank.first_step, rank.last_step + 1))
    return Trained(
        generation=generation,
        holders=holders,
        completed=frozenset[int]().union(*steps.values()),
        first_at=min(rank.first_at for message in messages for rank in message.ranks),
        last_at=max(rank.last_at for message in messages for rank in message.ranks),
    )


def losses(progress: Iterable[ProgressLine]) -> tuple[float | None, float | None]:
    """The first and the last reported loss."""
    by_age = {
        (message.generation, rank.last_step): rank.loss
        for message in progress
        for rank in message.ranks
        if rank.loss is not None
    }
    return (by_age[min(by_age)], by_age[max(by_age)]) if by_age else (None, None)


def formed_from(events: Iterable[EventLine]) -> tuple[Formed, ...]:
    """The worlds that the master announced. The reason of a world is that of the halt before it, if there was one."""
    formed: dict[Generation, Formed] = {}
    halted_why = ""
    for event in events:
        generation, size = event.fields.get("generation"), event.fields.get("world_size")
        if event.kind == EventKind.WORLD_HALTED:
            halted_why = event.why
        elif event.kind == EventKind.WORLD_DECIDED and isinstance(generation, int) and isinstance(size, int):
            entry = str(event.fields.get("entry") or "")
            formed[Generation(generation)] = Formed(Generation(generation), size, halted_why or event.why, entry)
            halted_why = ""
    return tuple(formed[generation] for generation in sorted(formed))


def noticed_in(events: Iterable[EventLine]) -> frozenset[WorkerId]:
    return frozenset(
        WorkerId(str(event.fields["worker"])) for event in events if event.kind == EventKind.WORKER_NOTICED
    )
