"""A trainer's core in tests: events in, effects out, with every invariant checked."""

from tradewind.protocol.trainer import Assign, Status, Store
from tradewind.sdk.trainer import events
from tradewind.sdk.trainer.decide import decide
from tradewind.sdk.trainer.effects import Report, StartBuild, Switch, TrainerEffect
from tradewind.sdk.trainer.events import TrainerEvent
from tradewind.sdk.trainer.invariants import check
from tradewind.sdk.trainer.state import Trainer

STORE = Store("127.0.0.1", 1)
BOTH = (True, True)


class Core:
    def __init__(self) -> None:
        self.state = Trainer(batch=12, steps=100)
        self.effects: list[TrainerEffect] = []
        self.wake_at_s: float | None = None

    def tell(self, *told: TrainerEvent) -> tuple[TrainerEffect, ...]:
        """Decides on each event, and returns the effects of the last one."""
        effects: tuple[TrainerEffect, ...] = ()
        for event in told:
            decision = decide(self.state, event)
            broken = check(self.state, decision.state, decision.effects)
            assert not broken, (event, broken)
            self.state, effects, self.wake_at_s = decision.state, decision.effects, decision.wake_at_s
            self.effects += effects
        return effects

    def enter_world(self) -> bool:
        self.tell(events.WorldAwaited(0.0))
        return not self.state.thread.awaits_world

    def enter_collective(self, step: int | None = None) -> bool:
        self.tell(events.GroupAwaited(0.0, step))
        return self.state.is_in_collective

    @property
    def statuses(self) -> list[Status]:
        return [effect.status for effect in self.effects if isinstance(effect, Report)]

    @property
    def status(self) -> Status:
        return self.statuses[-1]

    @property
    def builds(self) -> list[int]:
        return [effect.assign.generation for effect in self.effects if isinstance(effect, StartBuild)]

    @property
    def switches(self) -> list[int]:
        return [effect.generation for effect in self.effects if isinstance(effect, Switch)]


def in_a_first_world() -> Core:
    """The core of rank 0 of two, before step 5."""
    core = Core()
    core.tell(events.Assigned(0.0, Assign(1, 0, 2, "start", STORE)))
    assert core.enter_world()
    core.tell(events.GroupBuilt(0.0, 1), events.Started(0.0, 5))
    return core


def in_an_all_reduce() -> Core:
    core = in_a_first_world()
    assert core.enter_collective()
    return core


def repair(generation: int, held: tuple[tuple[tuple[int, int], ...], ...] = (((0, 6),),)) -> events.Assigned:
    return events.Assigned(0.0, Assign(generation, 0, 1, "repair", STORE, previous=(0,), resume=5, held=held))


def planned(generation: int, *, leaves: bool = False, rank: int = 0) -> events.Assigned:
    """A world of two: rank 0 of the world before, and one that joins."""
    assign = Assign(generation, rank, 2, "planned", STORE, previous=(0, -1), leaves=leaves)
    return events.Assigned(0.0, assign)
