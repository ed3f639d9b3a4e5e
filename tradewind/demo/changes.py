"""The changes of the world that a run lived through: what happened, what it cost."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

from msgspec import Struct

from messages.ids import Generation, WorkerId
from messages.worlds import Entry
from tradewind.demo import timeline
from tradewind.demo.cloud.facts import How
from tradewind.demo.facts import Facts, Trained


class Kind(StrEnum):
    HAND_OVER = "hand-over"
    """The next world was built while the present one trained."""
    JOIN = "join"
    """So, too; with newcomers in it."""
    REPAIR = "repair"
    """The world broke, and those who were left went on."""
    RESTART = "restart"
    """Trainers were started anew, from a checkpoint."""


class Change(Struct, frozen=True):
    kind: Kind
    what: str
    from_generation: Generation
    to_generation: Generation
    world_before: int
    world_after: int
    after_step: int
    """The last step of the world before."""
    pause_s: float
    """By how much the longest step on the way was longer than a usual one."""
    repeated_steps: int


def changes(facts: Facts, trained: list[Trained]) -> Iterator[Change]:
    for before, after in pairwise(trained):
        old, new = before.generation, after.generation
        yield Change(
            kind=_kind(facts, before, after),
            what=_what(facts, before, after),
            from_generation=old,
            to_generation=new,
            world_before=facts.size_of(old) or len(before.holders),
            world_after=facts.size_of(new) or len(after.holders),
            after_step=max(before.completed),
            pause_s=round(timeline.pause_s(facts.traced, old, new), 4),
            repeated_steps=timeline.repeated_steps(facts.traced, old, new),
        )


def _kind(facts: Facts, before: Trained, after: Trained) -> Kind:
    match facts.entry_of(after.generation):
        case Entry.PLANNED:
            return Kind.JOIN if after.members - before.members else Kind.HAND_OVER
        case Entry.REPAIR:
            return Kind.REPAIR
        case _:
            return Kind.RESTART


def _what(facts: Facts, before: Trained, after: Trained) -> str:
    left, came = sorted(before.members - after.members), sorted(after.members - before.members)
    lost = facts.entry_of(after.generation) == Entry.REPAIR
    parted = [f"{worker} {_parting(facts, worker, lost=lost)}" for worker in left]
    return ", ".join([*parted, *(f"{worker} joined{_origin(facts, worker)}" for worker in came)]) or "all stayed"


def _parting(facts: Facts, worker: WorkerId, *, lost: bool) -> str:
    taken = facts.cloud.taken if facts.cloud is not None else ()
    match next((each.how for each in taken if each.worker == worker), None):
        case How.HUNG:
            return "was on a node that hung"
        case How.UPGRADED:
            return "left before an upgrade"
    if worker in facts.noticed:
        return "had a notice and left"
    return "was lost without a word" if lost else "left"


def _origin(facts: Facts, worker: WorkerId) -> str:
    region = facts.cloud.regions.get(worker) if facts.cloud is not None else None
    return f" from {region}" if region else ""
