"""Where this trainer stands in the changing world.

Two threads meet here. The training thread asks before each collective whether it may enter, and says afterwards what
came of it. The control thread brings halts and assignments. Whatever a report says (`done`, `held`) and whatever the
training thread goes on to do change together, under one lock: else a halt between the two would count samples twice.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tradewind.protocol import trainer as protocol
from tradewind.protocol.trainer import Assign, Halt, Lease, Locate, Order, Status
from tradewind.sdk.control_words import Agreed
from tradewind.sdk.groups.group import Built, Group, Joiner
from tradewind.sdk.samples import Ranges, deal, merged, shares
from tradewind.sdk.stopping import Ending

_LOOK_S: Final = 1.0
_TO_BE_TAKEN_IN: Final = "to be taken into a world"


@dataclass(frozen=True, slots=True)
class World:
    assign: Assign
    active: tuple[bool, ...]
    """By rank: who has the state and takes a share."""

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
        """Of those who have the state: one is enough to speak to the world outside. A leaver never is."""
        return self.is_active and not any(self.active[: self.rank])

    def is_whole_in(self, repair: Assign) -> bool:
        """Nobody who had the state is missing: those who were waited for were slow. A joiner has none to miss."""
        return sum(self.active) <= sum(previous >= 0 for previous in repair.previous)


class Member:
    def __init__(
        self,
        batch: int,
        ending: Ending,
        tell: Callable[[bytes], None],
        start_build: Callable[[Assign], None],
        terms: str = "",
    ) -> None:
        self._batch = batch
        self._ending = ending
        self._terms = terms
        self._send = tell
        self._start_build = start_build
        self._changed = threading.Condition()
        self._world: World | None = None
        self._next: Assign | None = None
        self._later: Assign | None = None
        self._shelf: dict[int, Built] = {}
        self._failed_builds: set[int] = set()
        self._halted = 0
        self._parked = 0
        self._broken = 0
        self._done = 0
        self._held: Ranges = ()
        self._in_collective = False
        self._waiting: int | None = None
        """The step whose collective it is in, or is going to enter when the group is there."""
        self._overdue = False
        self._told_waiting = False
        """The last status said that this rank is in a collective."""
        self._pauses: list[tuple[str, float]] = []
        """Why and since when, in Unix seconds; the innermost last."""
        self._finished = False
        self._certificate: Mapping[str, int | str] | None = None
        self._lease_until_s: float | None = None
        self._waits = _TO_BE_TAKEN_IN
        self._rests_until_s: float | None = None
        self.keeps_gradients = False
        """What autograd has left counts in the world that was entered last."""
        self.step_s: Callable[[], float] = lambda: 0.0
        """Median seconds of recent steps; 0 before some were measured."""
        self.retired: Callable[[Group], None] = lambda group: None

    # What the training thread asks.

    @property
    def world(self) -> World | None:
        return self._world

    @property
    def is_active(self) -> bool:
        return self._world is not None and self._world.is_active

    @property
    def done(self) -> int:
        return self._done

    @property
    def held(self) -> Ranges:
        """Of step `done`: what this rank has computed or has to compute."""
        return self._held

    def is_halted(self) -> bool:
        world = self._world
        return world is not None and self._halted > world.generation

    def take_up(self, timeout_s: float | None = None) -> Assign | None:
        """Waits for a world that this trainer has to enter now: its first, or one after a halt. None after the timeout.

        A planned world counts only for who has none: who trains goes over in band.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while True:
                assign = self._next
                if assign is not None and self._may_enter(assign):
                    self._enter(assign)
                    return assign
                self._end_rest()
                left_s = _LOOK_S if deadline_s is None else deadline_s - time.monotonic()
                if left_s <= 0:
                    return None
                self._changed.wait(min(left_s, _LOOK_S))

    def start_collective(self, step: int | None = None) -> Built | None:
        """Waits for the group of the present world; None if the world is dead. The collective is that of this step, or
        of the one that is computed."""
        with self._changed:
            self._waiting = self._done if step is None else step
            built = self._take_group()
            self._in_collective = built is not None
            if built is None:
                self._waiting = None
            return built

    def ended_collective(self, built: Built, *, ok: bool) -> bool:
        """After one that was no step. False if the world is dead: then what is known was reported."""
        with self._changed:
            waited = self._leave_collective()
            if self._world is not None and (not ok or self._halted > self._world.generation):
                self._fall_out(self._world, ok=ok)
                ok = False
            elif waited:
                self._tell()
        if not ok:
            built.group.cut()
        return ok

    def started(self, done: int) -> None:
        """All ranks of a first world have the same state."""
        with self._changed:
            world = self._world
            assert world is not None
            self._world = World(world.assign, (True,) * world.size)
            self._done = done
            self._promise()
            self._tell()

    def caught_up(self, done: int) -> None:
        """This rank missed the last sum and has it now."""
        with self._changed:
            assert self._world is not None
            self._done = done
            self._held = self._dealt(self._world.assign, self._world.active)

    def summed(self, built: Built, agreed: Agreed | None, *, counts: bool) -> bool:
        """After the sum of a step: None if it failed. True if the world was changed with it.

        Who has the sum has the step, even if the world is already dead. `counts` is false for a sum that is no step.
        """
        switched = became_active = False
        with self._changed:
            waited = self._leave_collective()
            world = self._world
            assert world is not None
            if agreed is not None:
                self._ending.learn(agreed)
                self._done += counts
                self._held = ()
                became_active = agreed.active[world.rank] and not world.is_active
                self._world = world = World(world.assign, agreed.active)
                switched = self._switch(world, agreed)
                world = self._world
            if agreed is None or self._halted > world.generation:
                self._fall_out(world, ok=agreed is not None)
            elif self._parked <= world.generation:
                self._promise()
                if became_active or waited:
                    self._tell()
        if agreed is None:
            built.group.cut()
        return switched

    def level(self, done: int) -> None:
        """A joiner has the state as it was before this step."""
        with self._changed:
            self._done = done

    def gives_up(self, why: str, rest_s: float = 0.0) -> None:
        """A joiner that cannot get level asks for another world, but not before it has rested."""
        with self._changed:
            if self._world is not None:
                self._waits = why
                self._rests_until_s = time.monotonic() + rest_s if rest_s else None
                self._break(self._world)

    def ready_for(self) -> int:
        """The generation that this rank could go over to, or 0."""
        assign, world = self._next, self._world
        if assign is None or world is None or assign.entry != "planned" or assign.generation <= world.generation:
            return 0
        ready = assign.leaves or assign.generation in self._shelf
        return assign.generation if ready and assign.generation >= self._halted else 0

    def waits_long(self) -> None:
        """The collective takes much longer than it should: a rank may be slow, stalled or silent. The master finds out
        which."""
        with self._changed:
            if self._in_collective and not self._overdue:
                self._overdue = True
                self._tell()

    @contextlib.contextmanager
    def paused(self, reason: str) -> Iterator[None]:
        """Inside, the master lets the other ranks wait for this one without limit."""
        pause = reason, time.time()
        with self._changed:
            self._pauses.append(pause)
            self._tell()
        try:
            yield
        finally:
            with self._changed:
                self._pauses.remove(pause)
                self._tell()

    def joiners_to_serve(self) -> tuple[Joiner, ...]:
        """Of the present world: who waits for the state from us."""
        world = self._world
        if world is None or not world.is_active:
            return ()
        built = self._shelf.get(world.generation)
        return built.joiners if built is not None else ()

    def finish(self, certificate: Mapping[str, int | str]) -> None:
        with self._changed:
            self._finished = True
            self._certificate = certificate
            self._held = ()
            self._tell()

    # What the control thread and the builders bring.

    def obey(self, order: Order) -> None:
        match order:
            case Assign():
                self._on_assign(order)
            case Halt(generation):
                self._on_halt(generation)
            case Lease(valid_s):
                with self._changed:
                    self._lease_until_s = time.monotonic() + valid_s
                    self._changed.notify_all()
            case Locate():
                self.tell()

    def built(self, generation: int, built: Built | None) -> None:
        with self._changed:
            if built is None:
                self._failed_builds.add(generation)
                if generation >= self._halted:
                    self._tell()  # nobody else knows, and all would wait for this rank to be ready
            else:
                self._shelf[generation] = built
            dead = built is not None and generation < self._halted
            self._changed.notify_all()
        if dead and built is not None:
            built.group.cut()

    def tell(self) -> None:
        with self._changed:
            self._tell()

    def _on_assign(self, assign: Assign) -> None:
        with self._changed:
            known = (self._next, self._later, self._world)
            newest = max((each.generation for each in known if each is not None), default=0)
            if assign.generation <= newest or assign.generation < self._halted:
                return
            if assign.entry == "planned" and self._next is not None and self._may_enter(self._next):
                self._later = assign  # the world that it follows has to be entered first
            else:
                self._next = assign
            self._changed.notify_all()
        if not assign.leaves:
            self._start_build(assign)

    def _on_halt(self, generation: int) -> None:
        with self._changed:
            self._halted = max(self._halted, generation)
            dead = [built for known, built in self._shelf.items() if known < self._halted]
            if not self._in_collective:
                self._parked = max(self._parked, self._halted)
                self._tell()
            self._changed.notify_all()
        for built in dead:
            built.group.cut()

    # Under the lock.

    def _may_enter(self, assign: Assign) -> bool:
        world = self._world
        if assign.generation < self._halted or assign.leaves:
            return False
        if world is not None and (assign.generation <= world.generation):
            return False
        if assign.entry != "planned":
            return True
        # Who counts on our state in a planned world has us go over in band, after a step that all of them have.
        outside = world is None or not world.is_active or self._parked > world.generation
        return outside and assign.previous[assign.rank] < 0

    def _enter(self, assign: Assign) -> None:
        self._retire_older(assign.generation)
        entered = tuple(previous >= 0 for previous in assign.previous) or (False,) * assign.world_size
        self._world = World(assign, entered)
        level = entered[assign.rank] and self._done == assign.resume
        self.keeps_gradients = level and merged(assign.held[assign.rank] if assign.held else ()) == self._held
        if not self.keeps_gradients:
            self._held = ()
        if level:
            self._held = merged((*self._held, *self._dealt(assign, entered)))
        self._waits = ""
        self._rests_until_s = None
        if self._later is not None and self._later.generation > assign.generation:
            self._next = self._later
        self._later = None
        self._tell()

    def _end_rest(self) -> None:
        if self._rests_until_s is not None and time.monotonic() >= self._rests_until_s:
            self._rests_until_s = None
            self._waits = _TO_BE_TAKEN_IN
            self._tell()

    def _dealt(self, assign: Assign, active: Sequence[bool]) -> Ranges:
        """What this rank computes in addition to what it has, so that the step is whole."""
        if assign.resume >= self._ending.steps:
            return ()
        return deal(self._batch, assign.held, active)[assign.rank]

    def _promise(self) -> None:
        """From now on a report says that this rank is going to have its share of the next step."""
        world = self._world
        if world is None or not world.is_active or self._done >= self._ending.steps:
            self._held = ()
        else:
            self._held = shares(self._batch, world.active)[world.rank]

    def _switch(self, world: World, agreed: Agreed) -> bool:
        assign = self._next
        ready = agreed.ready_generation(world.generation, world.size)
        if assign is None or ready != assign.generation or self._halted > world.generation:
            return False
        self._retire_older(assign.generation)
        if assign.leaves:
            self._world = World(world.assign, (False,) * world.size)
            self._parked = assign.generation
            self._waits = "to be released"
        else:
            active = tuple(previous >= 0 and agreed.active[previous] for previous in assign.previous)
            self._world = World(assign, active)
        return True

    def _fall_out(self, world: World, *, ok: bool) -> None:
        if self._halted <= world.generation and not ok:
            self._break(world)
        else:
            self._parked = max(self._parked, self._halted)
            self._tell()

    def _break(self, world: World) -> None:
        self._broken = max(self._broken, world.generation)
        self._parked = max(self._parked, world.generation + 1)
        self._tell()

    def _retire_older(self, generation: int) -> None:
        for known in [known for known in self._shelf if known < generation]:
            self.retired(self._shelf.pop(known).group)

    @property
    def _unbuilt(self) -> int:
        """A world that this rank can never go over to, unless a halt has ended it already."""
        return max((generation for generation in self._failed_builds if generation >= self._halted), default=0)

    def _lease_is_fresh(self, world: World) -> bool:
        """A world of one is fenced by nothing but its lease."""
        if world.size > 1 or self._lease_until_s is None:
            return True
        return time.monotonic() < self._lease_until_s

    def _take_group(self) -> Built | None:
        while True:
            world = self._world
            if world is None or max(self._halted, self._parked, self._broken + 1) > world.generation:
                return None
            if world.generation in self._failed_builds:
                self._break(world)
                return None
            built = self._shelf.get(world.generation)
            if built is not None and self._lease_is_fresh(world):
                return built
            self._changed.wait(_LOOK_S)

    def _leave_collective(self) -> bool:
        """True if the last status said that this rank waits there."""
        waited, self._told_waiting = self._told_waiting, False
        self._in_collective = self._overdue = False
        self._waiting = None
        return waited

    def _tell(self) -> None:
        world = self._world
        paused, paused_at = self._pauses[-1] if self._pauses else ("", 0.0)
        self._told_waiting = self._waiting is not None
        now = Status(
            rank=world.rank if world is not None else 0,
            generation=world.generation if world is not None else 0,
            parked=self._parked,
            done=self._done,
            held=self._held,
            active=world is not None and world.is_active,
            finished=self._finished,
            broken=max(self._broken, self._unbuilt),
            waits=self._waits,
            resting=self._rests_until_s is not None,
            terms=self._terms,
            certificate=self._certificate,
            waiting=self._waiting,
            overdue=self._overdue,
            step_s=self.step_s(),
            paused=paused,
            paused_at=paused_at,
        )
        self._send(protocol.status(now))
