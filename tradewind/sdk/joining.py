"""Joining: how a rank enters a running world without the state.

From its first all-reduce on, the rank contributes zeros and records every step. Meanwhile the other ranks send the
state as it was at the switch. The rank replays the steps since then with the same optimizer, and then has the same
state as the others, bit for bit.

If its state differs, its script does something else than theirs. It leaves the world and tries again later. The others
repair their world each time, so it doubles its wait each time.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tradewind.sdk.diagnostics import Instruments, say
from tradewind.sdk.exchange import Contribution, Exchange, Recorded
from tradewind.sdk.trainer.sequence import Came
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.training_state.training_state import TrainingState
from tradewind.sdk.transfer.receiver import Admission, Receiver

_WAIT_AT_LEAST_S: Final = 0.02
_WAIT_AT_MOST_S: Final = 0.5
_ASK_AGAIN_S: Final = 0.002
_REST_FIRST_S: Final = 1.0
_REST_MOST_S: Final = 300.0
_REFUSED: Final = (
    "after the same step, this worker's state differs from that of the others: check that it runs the same script, "
    "with the same scheduler and update"
)


def refused(rest_s: float) -> str:
    return f"{_REFUSED}. It tries again in {rest_s:g} s"


class Question:
    """The step and fingerprint with which a joining rank requests admission.

    It repeats the same request after one more all-reduce: each rank that took part in that one knows the answer. If it
    sent its newest state each time, slower ranks would never know that state.
    """

    def __init__(self) -> None:
        self._asked: tuple[int, int] | None = None

    def at(self, done: int, fingerprint: Callable[[], int]) -> tuple[int, int]:
        if self._asked is None or self._asked[0] < done - 1:
            self._asked = done, fingerprint()
        return self._asked


class Joining:
    def __init__(
        self,
        trainer: TrainerShell,
        exchange: Exchange,
        state: TrainingState,
        receiver: Receiver,
        instruments: Instruments,
    ) -> None:
        self._trainer = trainer
        self._exchange = exchange
        self._state = state
        self._receiver = receiver
        self._instruments = instruments
        self._recorded: deque[Recorded] = deque()
        self._done: int | None = None
        """The step of the state here; None before the state has arrived."""
        self._next_step = 0
        self._exchanged_s = 0.0
        self._question = Question()
        self._rested_s = 0.0
        """Seconds of the last rest after a refusal; 0 once the rank is admitted."""

    def begin(self) -> None:
        world = self._trainer.world
        self._receiver.restart(world.generation if world is not None else 0)
        self._recorded.clear()
        self._done = None
        self._next_step = 0
        self._question = Question()
        self._exchanged_s = time.monotonic()

    def exchange_step(self) -> Came:
        """Takes part in an all-reduce, and takes a share from then on if this rank is admitted."""
        slot, is_level = self._next_step, self._is_level()
        reduced = self._exchange.all_reduce(Contribution(slot, active=is_level, gradients=False))
        if reduced is not None and not reduced.words.over:
            self._recorded.append(self._exchange.record(reduced, slot))
            self._next_step = reduced.step + 1
        if reduced is not None and is_level:
            self._rested_s = 0.0
            self._replay()
            self._instruments.trace("active", reduced.world.rank, reduced.world.generation, reduced.step)
        if self._trainer.is_active:
            self._receiver.stop_listening()
        if reduced is None:
            return Came.DEAD
        return Came.SWITCHED if reduced.switched else Came.SAME

    def catch_up(self) -> None:
        """Loads the state and replays steps, at most until the others are halfway through their next step.

        Control words of a rank that enters an all-reduce early are outdated when the others enter.
        """
        self._receiver.expect()
        before_s, self._exchanged_s = self._exchanged_s, time.monotonic()
        self._catch_up(min(max((self._exchanged_s - before_s) / 2, _WAIT_AT_LEAST_S), _WAIT_AT_MOST_S))

    def _is_level(self) -> bool:
        return self._done is not None and not self._recorded and self._receiver.admitted() is True

    def _catch_up(self, wait_s: float) -> None:
        deadline_s = time.monotonic() + wait_s
        if self._done is None and not self._load(wait_s):
            return
        self._replay()
        admission = self._receiver.admission
        while admission in (Admission.NOT_ASKED, Admission.UNKNOWN):
            assert self._done is not None
            self._receiver.ask_admission(*self._question.at(self._done, self._state.fingerprint))
            left_s = deadline_s - time.monotonic()
            admission = self._receiver.wait_admission(max(0.0, left_s))
            if left_s <= 0:
                break
            if admission is Admission.UNKNOWN:
                time.sleep(_ASK_AGAIN_S)
        if admission is Admission.ADMITTED:
            self._inject("join_level", self._done or 0)
        if admission is Admission.LOST:
            self._trainer.give_up("no rank has answered its request for admission")
        if admission is Admission.REFUSED:
            self._rest()

    def _rest(self) -> None:
        self._rested_s = min(max(2 * self._rested_s, _REST_FIRST_S), _REST_MOST_S)
        why = refused(self._rested_s)
        say(why)
        self._trainer.give_up(why, self._rested_s)

    def _load(self, wait_s: float) -> bool:
        snapshot = self._receiver.wait(wait_s)
        if snapshot is None:
            if self._receiver.failed:
                self._trainer.give_up(f"the state did not arrive: {self._receiver.failed}")
            return False
        self._state.load(snapshot.header, snapshot.data)
        self._done = snapshot.step
        self._trainer.received_state(snapshot.step)
        self._inject("join_loaded", snapshot.step)
        return True

    def _replay(self) -> None:
        while self._recorded:
            recorded = self._recorded.popleft()
            assert self._done is not None
            if recorded.step < self._done:
                continue
            self._exchange.replay(recorded)
            self._done = recorded.step + 1
            if not self._trainer.is_active:
                self._trainer.received_state(self._done)

    def _inject(self, phase: str, step: int) -> None:
        world = self._trainer.world
        self._instruments.faults(phase, world.rank if world is not None else 0, step)
