"""The state of a trainer: its world, the worlds that may follow, and its part of the current step.

The classes are named tuples: each step creates several, and creating one is five times faster than creating a frozen
dataclass.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tradewind.protocol.trainer import Assign, Ranges, Status

OUTSIDE: Final = "to be taken into a world"
LEFT: Final = "to be released"


class World(NamedTuple):
    assign: Assign
    active: tuple[bool, ...]
    """By rank: True if it has the state and takes a share of each step."""

    @property
    def generation(self) -> int:
        return self.assign.generation

    @property
    def rank(self) -> int:
        return self.assign.rank

    @property
    def size(self) -> int:
        return self.assign.world_size

    @property
    def is_active(self) -> bool:
        return self.active[self.rank]

    @property
    def is_first(self) -> bool:
        """True on the lowest active rank, which reports to the outside. A leaving rank is never the first."""
        return self.is_active and not any(self.active[: self.rank])

    def is_whole_in(self, repair: Assign) -> bool:
        """True if no rank with the state is missing in the repair: then the ranks were slow, not lost."""
        return sum(self.active) <= sum(previous >= 0 for previous in repair.previous)


class Plan(NamedTuple):
    """The assigned worlds that this trainer has not entered."""

    next: Assign | None = None
    waiting: tuple[Assign, ...] = ()
    """Newer assignments: a repair, then the newest planned one. They wait until the trainer has entered `next` or the
    all-reduce with the promise has ended."""
    promised: int = 0
    """The generation that this rank's control words declare ready, during that all-reduce; else 0."""


class Groups(NamedTuple):
    """Generations whose process groups were built, or whose builds failed."""

    built: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()


class Fence(NamedTuple):
    """The worlds that are over for this trainer."""

    halted: int = 0
    """Generations below this one are dead, by order of the agent."""
    parked: int = 0
    """The trainer is in no world of a generation below this one."""
    broken: int = 0
    """The newest generation in which a collective failed here."""


class Collective(NamedTuple):
    """The collective that the training thread is in, or enters when its group is built."""

    step: int
    is_entered: bool = False
    is_overdue: bool = False


class Pause(NamedTuple):
    reason: str
    since: float
    """Unix seconds."""


class Thread(NamedTuple):
    """The state of the training thread."""

    awaits_world: bool = False
    pauses: tuple[Pause, ...] = ()
    """Nested pauses, the innermost last."""


class Trainer(NamedTuple):
    batch: int
    steps: int
    """Number of steps of the run; lower once a rank has requested an earlier end."""
    terms: str = ""
    """Properties of script and state that must be the same on all ranks of the run."""
    world: World | None = None
    plan: Plan = Plan()
    groups: Groups = Groups()
    fence: Fence = Fence()
    thread: Thread = Thread()
    collective: Collective | None = None
    done: int = 0
    """Number of steps whose all-reduced gradient is here; also the number of the next step to compute."""
    held: Ranges = ()
    """Positions of step `done` whose gradients this rank has or will compute."""
    keeps_gradients: bool = False
    """True if the gradients in the model count in the world that was entered last."""
    reported_collective: bool = False
    """True if the last status reported this rank in a collective."""
    waits: str = OUTSIDE
    """What the trainer waits for, as text for people; empty inside a world."""
    rests_until_s: float | None = None
    lease_until_s: float | None = None
    certificate: Mapping[str, int | str] | None = None
    """The certificate of the run, once all steps are done."""

    @property
    def is_active(self) -> bool:
        return self.world is not None and self.world.is_active

    @property
    def is_halted(self) -> bool:
        return self.world is not None and self.fence.halted > self.world.generation

    @property
    def is_in_collective(self) -> bool:
        return self.collective is not None and self.collective.is_entered

    @property
    def is_parked(self) -> bool:
        """True if the trainer takes no part in its world any more."""
        return self.world is None or self.fence.parked > self.world.generation


def may_enter(state: Trainer, assign: Assign) -> bool:
    """True if the training thread may enter this world by itself, without a promise of all ranks in an all-reduce."""
    world = state.world
    if assign.leaves or assign.generation < state.fence.halted:
        return False
    if world is not None and assign.generation <= world.generation:
        return False
    if assign.entry != "planned":
        return True
    # Ranks of a planned world that need this rank's state expect it to switch with them, after a common step.
    is_outside = not state.is_active or state.is_parked
    return is_outside and assign.previous[assign.rank] < 0


def must_wait(state: Trainer, assign: Assign) -> bool:
    """True if an assignment must not replace the next one yet: all ranks switch to a promised world together."""
    plan = state.plan
    if plan.promised:
        return True
    return assign.entry == "planned" and plan.next is not None and may_enter(state, plan.next)


def ready_for(state: Trainer) -> int:
    """The generation that this rank could switch to after the next all-reduce, or 0."""
    assign, world = state.plan.next, state.world
    if assign is None or world is None or assign.entry != "planned" or assign.generation <= world.generation:
        return 0
    is_ready = assign.leaves or assign.generation in state.groups.built
    return assign.generation if is_ready and assign.generation >= state.fence.halted else 0


def status_of(state: Trainer) -> Status:
    """Returns the status for the agent, without the measured seconds of a step."""
    world, collective = state.world, state.collective
    pause = state.thread.pauses[-1] if state.thread.pauses else Pause("", 0.0)
    unbuilt = max((each for each in state.groups.failed if each >= state.fence.halted), default=0)
    return Status(
        rank=world.rank if world is not None else 0,
        generation=world.generation if world is not None else 0,
        parked=state.fence.parked,
        done=state.done,
        held=state.held,
        active=state.is_active,
        finished=state.certificate is not None,
        broken=max(state.fence.broken, unbuilt),
        waits=state.waits,
        resting=state.rests_until_s is not None,
        terms=state.terms,
        certificate=state.certificate,
        waiting=collective.step if collective is not None else None,
        overdue=collective is not None and collective.is_overdue,
        paused=pause.reason,
        paused_at=pause.since,
    )
