"""The changes of the world in a run: what happened, and the pause that it caused."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

from msgspec import Struct

from messages.ids import Generation, WorkerId
from messages.worlds import Entry
from tradewind.demo import timeline
from tradewind.demo.cloud.facts import How
from tradewind.demo.facts import Facts, Trained

UNCHANGED = "no worker changed"


class Kind(StrEnum):
    HAND_OVER = "hand-over"
    """The next world was built while the current one trained."""
    JOIN = "join"
    """A hand-over to a world with joining workers."""
    REPAIR = "repair"
    """The world broke, and the remaining workers continued."""
    RESTART = "restart"
    """Trainers restarted from a checkpoint."""


class Change(Struct, frozen=True):
    kind: Kind
    what: str
    from_generation: Generation
    to_generation: Generation
    world_before: int
    world_after: int
    after_step: int
    """The last step of the earlier world."""
    pause_s: float
    """Seconds by which the longest step at the change exceeded a usual one."""
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
    left, joined = sorted(before.members - after.members), sorted(after.members - before.members)
    lost = facts.entry_of(after.generation) == Entry.REPAIR
    parted = [_parting(facts, worker, lost=lost) for worker in left]
    return ", ".join([*parted, *(joined_text(worker, _origin(facts, worker)) for worker in joined)]) or UNCHANGED


def joined_text(worker: str, region: str = "") -> str:
    return f"{worker} joined from {region}" if region else f"{worker} joined"


def lost_text(worker: str) -> str:
    return f"{worker} was lost without notice"


def hung_text(worker: str) -> str:
    return f"{worker} was on a node that hung"


def upgraded_text(worker: str) -> str:
    return f"{worker} left before an upgrade"


def noticed_text(worker: str) -> str:
    return f"{worker} had a notice and left"


def _parting(facts: Facts, worker: WorkerId, *, lost: bool) -> str:
    taken = facts.cloud.taken if facts.cloud is not None else ()
    match next((each.how for each in taken if each.worker == worker), None):
        case How.HUNG:
            return hung_text(worker)
        case How.UPGRADED:
            return upgraded_text(worker)
    if worker in facts.noticed:
        return noticed_text(worker)
    return lost_text(worker) if lost else f"{worker} left"


def _origin(facts: Facts, worker: WorkerId) -> str:
    return facts.cloud.regions.get(worker, "") if facts.cloud is not None else ""
