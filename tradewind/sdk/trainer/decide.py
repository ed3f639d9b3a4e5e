"""The trainer's decisions: learn from the event, then reconcile the state with what the training thread waits for.

Events come from the training thread, the agent's orders and the builders of process groups. One decision changes both
what a report contains (`done`, `held`) and what the training thread computes next: a halt between the two would count
samples twice.
"""

from typing import NamedTuple

from tradewind.sdk.trainer.effects import Report, TrainerEffect
from tradewind.sdk.trainer.events import TrainerEvent
from tradewind.sdk.trainer.learn import learn
from tradewind.sdk.trainer.reconcile import reconcile
from tradewind.sdk.trainer.state import Trainer, status_of
from tradewind.sdk.trainer.turn import Turn


class Decision(NamedTuple):
    """A copy of `runtime.decision.Decision`, which scripts cannot import. `state.waits` tells why a trainer waits."""

    state: Trainer
    effects: tuple[TrainerEffect, ...] = ()
    wake_at_s: float | None = None


def decide(state: Trainer, event: TrainerEvent) -> Decision:
    turn = Turn(state, event.at_s)
    learn(turn, event)
    reconcile(turn)
    after = turn.state
    if not turn.reports:
        return Decision(after, tuple(turn.effects), after.rests_until_s)
    after = after._replace(reported_collective=after.collective is not None)
    return Decision(after, (Report(status_of(after)), *turn.effects), after.rests_until_s)
