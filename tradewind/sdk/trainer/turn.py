"""A decision in progress: its state and effects so far, and the changes that several events share."""

from typing import Any

from tradewind.protocol.trainer import Ranges
from tradewind.sdk.trainer.effects import CutGroups, RetireGroups, TrainerEffect
from tradewind.sdk.trainer.shares import shares
from tradewind.sdk.trainer.state import Trainer, World


class Turn:
    __slots__ = ("effects", "now_s", "reports", "state")

    def __init__(self, state: Trainer, now_s: float) -> None:
        self.state = state
        self.now_s = now_s
        self.effects: list[TrainerEffect] = []
        self.reports = False

    def change(self, **fields: Any) -> None:
        self.state = self.state._replace(**fields)

    def report(self) -> None:
        """Makes the decision end with a report of the new state."""
        self.reports = True

    def set_plan(self, **fields: Any) -> None:
        self.change(plan=self.state.plan._replace(**fields))

    def set_fence(self, **fields: Any) -> None:
        self.change(fence=self.state.fence._replace(**fields))

    def set_thread(self, **fields: Any) -> None:
        self.change(thread=self.state.thread._replace(**fields))

    def leave_collective(self, **fields: Any) -> bool:
        """Leaves the collective and ends its promise. True if the last status reported this rank in a collective."""
        was_reported = self.state.reported_collective
        plan = self.state.plan
        self.change(
            collective=None,
            plan=plan._replace(promised=0) if plan.promised else plan,
            reported_collective=False,
            **fields,
        )
        return was_reported

    def park(self) -> None:
        """Parks the trainer for the newest halt."""
        fence = self.state.fence
        if fence.parked < fence.halted:
            self.set_fence(parked=fence.halted)
        self.report()

    def break_world(self, world: World) -> None:
        """Marks this world as broken: a collective failed here before any halt."""
        fence = self.state.fence
        self.set_fence(
            broken=max(fence.broken, world.generation),
            parked=max(fence.parked, world.generation + 1),
        )
        self.report()

    def take_share(self) -> None:
        """Takes this rank's share of the next step: reports list it from now on."""
        state, world = self.state, self.state.world
        if world is None or not world.is_active or state.done >= state.steps:
            self.hold(())
        else:
            self.hold(shares(state.batch, world.active)[world.rank])

    def hold(self, held: Ranges) -> None:
        if held != self.state.held:
            self.change(held=held)

    def cut(self, below: int) -> None:
        if any(generation < below for generation in self.state.groups.built):
            self.effects.append(CutGroups(below))

    def retire(self, below: int) -> None:
        groups = self.state.groups
        kept = frozenset(generation for generation in groups.built if generation >= below)
        if kept != groups.built:
            self.change(groups=groups._replace(built=kept))
            self.effects.append(RetireGroups(below))
