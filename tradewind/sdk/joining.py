"""A rank that enters a running world without the state.

From its first all-reduce on it takes part with nothing of its own and records every step. Meanwhile the other ranks
send the state as it was at the switch. It replays the steps since then, with the same optimizer, and is then level, bit
for bit.

If it is not, its script does something else than theirs. It leaves the world and tries again later. The others repair
their world each time, so it waits twice as long as the time before.
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
    "after the same step this worker's state is not that of the others: does it run the same script, with the same "
    "scheduler and the same update?"
)


class Question:
    """The step and fingerprint with which a joining rank asks to be admitted.

    It asks the same again after one more all-reduce: each rank that took part in that knows the answer, however slow it
    is. If it asked for its newest state each time, ranks that are slower than it would never know."""

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
        """The step that the state here is at; None before it has come."""
        self._next_step = 0
        self._exchanged_s = 0.0
        self._question = Question()
        self._rested_s = 0.0
        """After the last refusal, if it was never admitted since."""

    def begin(self) -> None:
        world = self._trainer.world
        self._receiver.restart(world.generation if world is not None else 0)
        self._recorded.clear()
        self._done = None
        self._next_step = 0
        self._question = Question()
        self._exchanged_s = time.monotonic()

    def exchange_step(self) -> Came:
        """Takes a share from this step on if the state here is that of the others."""
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
        """At most until the others are half through their next step: a rank that is early in an all-reduce tells others
        what is true no more when they come."""
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
            self._trainer.give_up("nobody answered whether its state is that of the others")
        if admission is Admission.REFUSED:
            self._rest()

    def _rest(self) -> None:
        self._rested_s = min(max(2 * self._rested_s, _REST_FIRST_S), _REST_MOST_S)
        why = f"{_REFUSED} It tries again in {self._rested_s:g} s"
        say(why)
        self._trainer.give_up(why, self._rested_s)

    def _load(self, wait_s: float) -> bool:
        snapshot = self._receiver.wait(wait_s)
        if snapshot is None:
            if self._receiver.failed:
                self._trainer.give_up(f"the state did not come: {self._receiver.failed}")
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
