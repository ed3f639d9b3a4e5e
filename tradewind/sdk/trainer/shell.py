"""The threads of a trainer around its core: one lock, one state, and hands for what is decided.

The training thread says what it is about to do and what came of it, and waits here for worlds and groups. The control
thread brings orders, builders bring groups. All of them only feed the core.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from tradewind.protocol.trainer import Assign, Halt, Lease, Locate, Order, Ranges, encode_message
from tradewind.sdk.control_words import Agreed
from tradewind.sdk.groups.group import Built, Group, JoiningRank
from tradewind.sdk.trainer import events
from tradewind.sdk.trainer.decide import Decision, decide
from tradewind.sdk.trainer.effects import CutGroups, Report, RetireGroups, StartBuild, Switch, TrainerEffect
from tradewind.sdk.trainer.state import Trainer, World, ready_for


class TrainerShell:
    def __init__(
        self,
        state: Trainer,
        send: Callable[[bytes], None],
        start_build: Callable[[Assign], None],
        retire: Callable[[Group], None] = lambda group: None,
    ) -> None:
        self._state = state
        self._send = send
        self._start_build = start_build
        self._retire = retire
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._groups: dict[int, Built] = {}
        self._wake_at_s: float | None = None
        self.step_s: Callable[[], float] = lambda: 0.0
        """Median seconds of recent steps; 0 before some were measured."""

    # What the training thread reads. The state is replaced as a whole, so reading it needs no lock.

    def read(self) -> Trainer:
        return self._state

    @property
    def world(self) -> World | None:
        return self._state.world

    @property
    def is_active(self) -> bool:
        return self._state.is_active

    @property
    def done(self) -> int:
        """The step that is computed next."""
        return self._state.done

    @property
    def held(self) -> Ranges:
        """Positions of step `done` that this rank has computed or has to compute."""
        return self._state.held

    @property
    def steps(self) -> int:
        """The number of steps after which the run is over, as far as is known."""
        return self._state.steps

    def is_halted(self) -> bool:
        return self._state.is_halted

    def joiners_to_serve(self) -> tuple[JoiningRank, ...]:
        """Ranks of the present world that wait for the state from this one."""
        world = self._state.world
        built = self._groups.get(world.generation) if world is not None and world.is_active else None
        return built.joiners if built is not None else ()

    # What the training thread does.

    def await_world(self) -> Assign:
        """Waits for a world that this trainer has to enter by itself: its first, or one after a halt."""
        self._feed(events.WorldAwaited(time.monotonic()))
        self._wait_while(lambda state: state.thread.awaits_world)
        world = self._state.world
        assert world is not None
        return world.assign

    def start_collective(self, step: int | None = None) -> Built | None:
        """Waits for the group of the present world; None if the world is dead. `step`: the one that is computed."""
        state = self._feed(events.GroupAwaited(time.monotonic(), step)).state
        if not state.is_in_collective:
            self._wait_while(lambda state: state.collective is not None and not state.is_in_collective)
            state = self._state
        return self._groups[state.world.generation] if state.world is not None and state.is_in_collective else None

    def ready_for(self) -> int:
        """The generation to be declared in the control words of the collective that was started, or 0."""
        state = self._state
        if not state.plan.promised and not ready_for(state):
            return 0  # as in almost every step: there is nothing to decide
        return self._feed(events.ReadinessDeclared(time.monotonic())).state.plan.promised

    def waits_long(self) -> None:
        """The collective takes much longer than it should: the master finds out which rank is missing."""
        self._feed(events.WaitedLong(time.monotonic()))

    def ended_collective(self, *, ok: bool) -> bool:
        """After a collective that was no step. False if the world is dead."""
        return not self._feed(events.CollectiveEnded(time.monotonic(), ok)).state.is_parked

    def step_reduced(self, agreed: Agreed | None, *, counts: bool) -> bool:
        """After the all-reduce of a step: None if it failed. True if the world changed with it."""
        if agreed is None:
            self._feed(events.StepFailed(time.monotonic()))
            return False
        world = self._state.world
        assert world is not None
        ready = agreed.ready_generation(world.generation, world.size)
        reduced = events.StepReduced(time.monotonic(), agreed.active, ready, agreed.ends_after, counts)
        effects = self._feed(reduced).effects
        return any(isinstance(effect, Switch) for effect in effects) if effects else False

    def started(self, done: int) -> None:
        """All ranks of a first world have the same state."""
        self._feed(events.Started(time.monotonic(), done))

    def caught_up(self, done: int, agreed: Agreed) -> None:
        """This rank had missed the last all-reduce and has its result now."""
        self._feed(events.CaughtUp(time.monotonic(), done, agreed.ends_after))

    def received_state(self, done: int) -> None:
        """A joining rank has the state as it was before this step."""
        self._feed(events.StateReceived(time.monotonic(), done))

    def give_up(self, why: str, rest_s: float = 0.0) -> None:
        """A joining rank that cannot get the state needs another world, but not before it has rested."""
        self._feed(events.GaveUp(time.monotonic(), why, rest_s))

    @contextlib.contextmanager
    def paused(self, reason: str) -> Iterator[None]:
        """Inside, the master lets the other ranks wait for this one without limit."""
        since = time.time()
        self._feed(events.PauseBegan(time.monotonic(), reason, since))
        try:
            yield
        finally:
            self._feed(events.PauseEnded(time.monotonic(), reason, since))

    def finish(self, certificate: Mapping[str, int | str]) -> None:
        self._feed(events.Finished(time.monotonic(), certificate))

    def report(self) -> None:
        """Reports the status."""
        self._feed(events.StatusAsked(time.monotonic()))

    # What the control thread and the builders bring.

    def obey(self, order: Order) -> None:
        now_s = time.monotonic()
        match order:
            case Assign():
                self._feed(events.Assigned(now_s, order))
            case Halt(generation):
                self._feed(events.Halted(now_s, generation))
            case Lease(valid_s):
                self._feed(events.Leased(now_s, valid_s))
            case Locate():
                self._feed(events.StatusAsked(now_s))
            case _:
                assert_never(order)

    def built(self, generation: int, built: Built | None) -> None:
        """None: the group could not be built."""
        if built is None:
            self._feed(events.BuildFailed(time.monotonic(), generation))
            return
        with self._lock:
            self._groups[generation] = built
        self._feed(events.GroupBuilt(time.monotonic(), generation))

    def _feed(self, event: events.TrainerEvent) -> Decision:
        with self._lock:
            before = self._state
            decision = decide(before, event)
            self._state = decision.state
            self._wake_at_s = decision.wake_at_s
            slow = self._carry_out(decision.effects) if decision.effects else ()
            if decision.state is not before:
                self._changed.notify_all()
        for act in slow:
            act()
        return decision

    def _carry_out(self, effects: Sequence[TrainerEffect]) -> list[Callable[[], None]]:
        """Reports leave under the lock, in the order of decisions. Returns what may take time: it is done after it."""
        slow: list[Callable[[], None]] = []
        for effect in effects:
            match effect:
                case Report(status):
                    self._send(encode_message(replace(status, step_s=self.step_s())))
                case StartBuild(assign):
                    slow.append(partial(self._start_build, assign))
                case CutGroups(below):
                    slow += [built.group.cut for known, built in self._groups.items() if known < below]
                case RetireGroups(below):
                    for known in [known for known in self._groups if known < below]:
                        self._retire(self._groups.pop(known).group)
                case Switch():
                    pass  # the training thread learns of it from the decision
                case _:
                    assert_never(effect)
        return slow

    def _wait_while(self, waits: Callable[[Trainer], bool]) -> None:
        while True:
            with self._lock:
                due_s = self._wake_at_s
                left_s = None if due_s is None else due_s - time.monotonic()
                if not waits(self._state):
                    return
                if left_s is None or left_s > 0:
                    self._changed.wait(left_s)
                    continue
            self._feed(events.Ticked(time.monotonic()))
