"""A trainer that comes into a running world without the state.

From its first sum on it takes part with nothing of its own and keeps every sum. Meanwhile survivors send the state as
it was at the switch. It applies the sums that came since, with the same optimizer, and is then level, bit for bit.

If it is not, its script does something else than theirs. It leaves the world and tries again later. The others repair
theirs each time, so it rests twice as long as the time before.
"""

import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from tradewind.sdk import control_words
from tradewind.sdk.buckets import Gradients
from tradewind.sdk.certificate import Certificate, Digest
from tradewind.sdk.diagnostics import Faults, Trace
from tradewind.sdk.samples import Order
from tradewind.sdk.stopping import Ending
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.training_state.training_state import TrainingState
from tradewind.sdk.transfer.receiver import Admission, Receiver
from tradewind.sdk.update import Applying

_WAIT_AT_LEAST_S: Final = 0.02
_WAIT_AT_MOST_S: Final = 0.5
_ASK_AGAIN_S: Final = 0.002
_REST_FIRST_S: Final = 1.0
_REST_MOST_S: Final = 300.0
_REFUSED: Final = (
    "after the same step this worker's state is not that of the others: does it run the same script, with the same "
    "scheduler and the same update?"
)


@dataclass(frozen=True, slots=True)
class Kept:
    """The sum of a step, with its tail."""

    step: int
    world_size: int
    flat: Tensor


class Question:
    """With which step and fingerprint a joiner asks to be admitted.

    It asks the same again after one more sum: whoever took part in that knows the answer, however slow it is. If it
    asked for its newest state each time, others that are slower than it would never know."""

    def __init__(self) -> None:
        self._asked: tuple[int, int] | None = None

    def at(self, done: int, fingerprint: Callable[[], int]) -> tuple[int, int]:
        if self._asked is None or self._asked[0] < done - 1:
            self._asked = done, fingerprint()
        return self._asked


class Joining:
    def __init__(
        self,
        member: TrainerShell,
        gradients: Gradients,
        order: Order,
        state: TrainingState,
        applying: Applying,
        certificate: Certificate,
        receiver: Receiver,
        ending: Ending,
        faults: Faults,
        trace: Trace,
    ) -> None:
        self._member = member
        self._gradients = gradients
        self._order = order
        self._state = state
        self._applying = applying
        self._certificate = certificate
        self._receiver = receiver
        self._ending = ending
        self._faults = faults
        self._trace = trace
        self._sums: deque[Kept] = deque()
        self._done: int | None = None
        """The step that the state here is at; None before it has come."""
        self._next_step = 0
        self._question = Question()
        self._rested_s = 0.0
        """After the last refusal, if it was never admitted since."""

    def run(self, on_wait: Callable[[float], None]) -> bool:
        """Returns when this rank is active, or when the world is dead. True if the world changed with the last sum.

        `on_wait` is called now and then with the seconds waited in an all-reduce so far."""
        world = self._member.world
        self._receiver.restart(world.generation if world is not None else 0)
        self._sums.clear()
        self._done = None
        self._next_step = 0
        self._question = Question()
        summed_s = time.monotonic()
        while True:
            switched = self._sum(self._is_level(), on_wait)
            world = self._member.world
            if world is not None and world.is_active:
                self._receiver.stop_listening()
            if switched is None or world is None or world.is_active:
                return switched is True
            self._receiver.expect()
            before_s, summed_s = summed_s, time.monotonic()
            self._catch_up(min(max((summed_s - before_s) / 2, _WAIT_AT_LEAST_S), _WAIT_AT_MOST_S))

    def _is_level(self) -> bool:
        return self._done is not None and not self._sums and self._receiver.admitted() is True

    def _sum(self, level: bool, on_wait: Callable[[float], None]) -> bool | None:
        """None if the world is dead."""
        member, gradients, step = self._member, self._gradients, self._next_step
        built = member.start_collective()
        world = member.world
        if built is None or world is None:
            return None
        gradients.clear(step)
        flat = gradients.buffer(step)[: gradients.tail_begins + control_words.size(world.size)]
        ready = member.ready_for()
        own = control_words.Own(
            ready - world.generation if ready else 0, Digest(), 0.0, active=level, step=None, stops=self._ending.asked
        )
        control_words.write(gradients.tail(step), own, world.rank)
        work = built.group.sum(flat)
        done = built.group.finish(work, member.is_halted, on_wait)
        if not done and work is not None and not work.is_completed():
            built.group.leave_behind(gradients.give_up(step))
        agreed = control_words.read(flat[gradients.tail_begins :], world.size) if done else None
        is_step = agreed is not None and not agreed.over
        switched = member.summed(agreed, counts=level and is_step)
        if agreed is None:
            return None
        if is_step:
            self._keep(agreed.step, flat, world.size)
        if level:
            self._rested_s = 0.0
            self._replay()
            self._trace("active", world.rank, world.generation, agreed.step)
        return switched

    def _keep(self, step: int, flat: Tensor, world_size: int) -> None:
        self._sums.append(Kept(step, world_size, flat.clone()))
        self._next_step = step + 1

    def _catch_up(self, wait_s: float) -> None:
        """At most until the others are half through their next step: whoever comes early to a sum says old things."""
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
            world = self._member.world
            self._faults("join_level", world.rank if world is not None else 0, self._done or 0)
        if admission is Admission.LOST:
            self._member.gives_up("nobody answered whether its state is that of the others")
        if admission is Admission.REFUSED:
            self._rest()

    def _rest(self) -> None:
        self._rested_s = min(max(2 * self._rested_s, _REST_FIRST_S), _REST_MOST_S)
        why = f"{_REFUSED} It tries again in {self._rested_s:g} s"
        print(f"tradewind: {why}", file=sys.stderr)
        self._member.gives_up(why, self._rested_s)

    def _load(self, wait_s: float) -> bool:
        snapshot = self._receiver.wait(wait_s)
        if snapshot is None:
            if self._receiver.failed:
                self._member.gives_up(f"the state did not come: {self._receiver.failed}")
            return False
        self._state.load(snapshot.header, snapshot.data)
        self._done = snapshot.step
        self._member.level(snapshot.step)
        world = self._member.world
        self._faults("join_loaded", world.rank if world else 0, snapshot.step)
        return True

    def _replay(self) -> None:
        while self._sums:
            kept = self._sums.popleft()
            assert self._done is not None
            if kept.step < self._done:
                continue
            agreed = control_words.read(kept.flat[self._gradients.tail_begins :], kept.world_size)
            self._certificate.check(kept.step, agreed.digest, Digest.of(self._order.indices(kept.step)))
            self._gradients.buffer(kept.step)[: kept.flat.numel()].copy_(kept.flat)
            self._applying(kept.step, agreed)
            self._done = kept.step + 1
            if not self._member.is_active:
                self._member.level(self._done)
