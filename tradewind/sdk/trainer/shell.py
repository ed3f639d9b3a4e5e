"""The shell of a trainer's core: it passes events of several threads to the core under one lock and performs effects.

The training thread reports what it will do and what came of it, and waits here for worlds and groups. The control
thread brings orders, and builders bring groups.
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
        """Median seconds of recent steps; 0 before enough were measured."""

    # Queries of the training thread. The shell replaces the state as a whole, so reading it needs no lock.

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
        """The next step to compute."""
        return self._state.done

    @property
    def held(self) -> Ranges:
        """Positions of step `done` that this rank has computed or must compute."""
        return self._state.held

    @property
    def steps(self) -> int:
        """Number of steps of the run; lower once a rank has requested an earlier end."""
        return self._state.steps

    def is_halted(self) -> bool:
        return self._state.is_halted

    def joining_ranks_to_serve(self) -> tuple[JoiningRank, ...]:
        """Ranks of the current world that wait for the state from this one."""
        world = self._state.world
        built = self._groups.get(world.generation) if world is not None and world.is_active else None
        return built.joining_ranks if built is not None else ()

    # Events of the training thread.

    def await_world(self) -> Assign:
        """Waits for a world that this trainer enters by itself: its first, or one after a halt."""
        self._feed(events.WorldAwaited(time.monotonic()))
        self._wait_while(lambda state: state.thread.awaits_world)
        world = self._state.world
        assert world is not None
        return world.assign

    def start_collective(self, step: int | None = None) -> Built | None:
        """Waits for the group of the current world; None if the world is dead. `step` defaults to the current step."""
        state = self._feed(events.GroupAwaited(time.monotonic(), step)).state
        if not state.is_in_collective:
            self._wait_while(lambda state: state.collective is not None and not state.is_in_collective)
            state = self._state
        return self._groups[state.world.generation] if state.world is not None and state.is_in_collective else None

    def ready_for(self) -> int:
        """The generation to declare in the control words of the started collective, or 0."""
        state = self._state
        if not state.plan.promised and not ready_for(state):
            return 0  # in almost every step there is nothing to decide
        return self._feed(events.ReadinessDeclared(time.monotonic())).state.plan.promised

    def waits_long(self) -> None:
        """Reports that the collective takes too long, so that the master finds the missing rank."""
        self._feed(events.WaitedLong(time.monotonic()))

    def ended_collective(self, *, ok: bool) -> bool:
        """Ends a collective that was no step. False if the world is dead."""
        return not self._feed(events.CollectiveEnded(time.monotonic(), ok)).state.is_parked

    def step_reduced(self, agreed: Agreed | None, *, counts: bool) -> bool:
        """Ends the all-reduce of a step; `agreed` is None if it failed. True if the world changed with it."""
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
        """Records that all ranks of a first world have the same state."""
        self._feed(events.Started(time.monotonic(), done))

    def caught_up(self, done: int, agreed: Agreed) -> None:
        """Records that this rank now has the result of the all-reduce that it missed."""
        self._feed(events.CaughtUp(time.monotonic(), done, agreed.ends_after))

    def received_state(self, done: int) -> None:
        """Records that this joining rank has the state from before step `done`."""
        self._feed(events.StateReceived(time.monotonic(), done))

    def give_up(self, why: str, rest_s: float = 0.0) -> None:
        """Leaves the world, because this joining rank cannot get the state; it joins again after `rest_s` seconds."""
        self._feed(events.GaveUp(time.monotonic(), why, rest_s))

    @contextlib.contextmanager
    def paused(self, reason: str) -> Iterator[None]:
        """A context in which the master lets the other ranks wait for this one without limit."""
        since = time.time()
        self._feed(events.PauseBegan(time.monotonic(), reason, since))
        try:
            yield
        finally:
            self._feed(events.PauseEnded(time.monotonic(), reason, since))

    def finish(self, certificate: Mapping[str, int | str]) -> None:
        self._feed(events.Finished(time.monotonic(), certificate))

    def report(self) -> None:
        self._feed(events.StatusAsked(time.monotonic()))

    # Events of the control thread and the builders.

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
        """Takes a built group; None if the build failed."""
        if built is None:
            self._feed(events.BuildFailed(time.monotonic(), generation))
            return
        with self._lock:
            self._groups[generation] = built
        self._feed(events.GroupBuilt(time.monotonic(), generation))

    def take_groups(self) -> list[Group]:
        """The groups with other ranks, which the trainer no longer holds; for the end of the process."""
        with self._lock:
            groups = [built.group for built in self._groups.values() if built.group.size > 1]
            self._groups.clear()
        return groups

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
        """Performs quick effects under the lock: reports leave in the order of decisions. Returns the slow effects."""
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
                    pass  # the training thread reads it from the decision
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
