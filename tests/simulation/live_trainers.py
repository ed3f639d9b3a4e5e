"""Live trainers: the production core of each, and its training thread in virtual time.

The thread takes the order of its acts from `tradewind/sdk/trainer/sequence.py`, as the real one does. What is written
here a second time is how an act is done, with numbers in place of gradients: the counterparts are `training.py`,
`joining.py` and `exchange.py` of the SDK, whose acts are calls of torch that wait.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from messages.ids import Generation, Rank
from messages.workers import TrainerExit
from tests.simulation.clockwork import Broken
from tests.simulation.collectives import RETIRED_S
from tests.simulation.step_truth import BATCH, Part, Reduced, Row, StepTruth
from tradewind.protocol.trainer import Assign, Halt, Lease, Locate, Order, Ranges, Status
from tradewind.sdk import control_words
from tradewind.sdk.certificate import Digest
from tradewind.sdk.control_words import Own
from tradewind.sdk.trainer import events
from tradewind.sdk.trainer.decide import Decision, decide
from tradewind.sdk.trainer.effects import CutGroups, Report, RetireGroups, StartBuild, Switch
from tradewind.sdk.trainer.invariants import check
from tradewind.sdk.trainer.sequence import Act, Came, acts, advance, is_over
from tradewind.sdk.trainer.shares import merged, without
from tradewind.sdk.trainer.state import Trainer

COMPUTE_S = 0.1

Wait = float | Callable[[], bool]
"""What a training thread waits for: some seconds, or a condition."""


@dataclass(eq=False)
class Join:
    """What a joining rank has of the state."""

    entered_at: Row | None = None
    """The row of the others at the time when it entered."""
    recorded: dict[int, int] = field(default_factory=dict)
    """Results since then, by step."""
    has_asked: bool = False
    snapshot: Row | None = None
    is_level: bool = False


@dataclass(eq=False)
class LiveTrainer:
    training: "LiveTraining"
    birth: tuple[Generation, Rank]
    local_rank: int
    worker: str
    tell: Callable[[Status], None]
    exited: Callable[[TrainerExit], None]
    state: Trainer = field(init=False)
    row: Row = ()
    computed: Ranges = ()
    alive: bool = True
    silent: bool = False
    stopped: bool = False
    """True if it is silent because it was stopped, which its agent can see."""
    busy_since_s: float | None = None
    """Time since which it is in its loop body: it receives orders, but enters no collective and no world."""
    is_computing: bool = False

    def __post_init__(self) -> None:
        self.state = Trainer(BATCH, self.training.steps)
        self._clockwork = self.training.clockwork
        self._thread = self._train()
        self._until: Callable[[], bool] | None = None
        self._is_running = False
        self._is_due = False
        self._result: Any = None
        self._has_result = False
        self._orders: list[Callable[[], Any]] = []
        self._join = Join()
        self._others: list[Callable[[], Any]] = []
        """Events while it is silent: orders in their order, the rest from other threads."""

    @property
    def generation(self) -> int:
        return self.state.world.generation if self.state.world is not None else 0

    @property
    def trains(self) -> bool:
        return self.alive and not self.state.is_parked

    @property
    def is_busy(self) -> bool:
        return self.busy_since_s is not None

    @property
    def is_joining(self) -> bool:
        return self.trains and not self.state.is_active and self._join.snapshot is not None

    @property
    def is_leaving(self) -> bool:
        following = self.state.plan.next
        return self.trains and following is not None and following.leaves

    # What others do to it.

    def start(self) -> None:
        self.feed(events.StatusAsked(self._clockwork.now_s))
        self._run()

    def obey(self, order: Order) -> None:
        if not self.alive:
            return
        if self.silent:
            self._orders.append(partial(self.obey, order))
            return
        now_s = self._clockwork.now_s
        match order:
            case Assign():
                self.training.groups.learn(order)
                self.feed(events.Assigned(now_s, order))
            case Halt(generation):
                self.feed(events.Halted(now_s, generation))
            case Lease(valid_s):
                self.feed(events.Leased(now_s, valid_s))
            case Locate():
                self.feed(events.StatusAsked(now_s))

    def on_built(self, generation: int) -> None:
        self._by_itself(lambda: self.feed(events.GroupBuilt(self._clockwork.now_s, generation)))

    def on_build_failed(self, generation: int) -> None:
        self._by_itself(lambda: self.feed(events.BuildFailed(self._clockwork.now_s, generation)))

    def on_waited_long(self) -> None:
        self._by_itself(lambda: self.feed(events.WaitedLong(self._clockwork.now_s)))

    def on_result(self, result: Any) -> None:
        def receive() -> None:
            self._result, self._has_result = result, True
            self._poke()

        self._by_itself(receive)

    def silence(self, for_s: float, *, stopped: bool) -> None:
        self.silent, self.stopped = True, stopped
        self._clockwork.after(for_s, self._wake)

    def occupy(self, for_s: float) -> None:
        """Keeps it in its loop body, unless it is in an all-reduce or waits for a world."""
        if not self.is_busy and self.is_computing:
            self.busy_since_s = self._clockwork.now_s
            self._clockwork.after(for_s, self._come_back)

    def feed(self, event: events.TrainerEvent) -> Decision:
        before = self.state
        decision = decide(before, event)
        self.state = decision.state
        broken = check(before, decision.state, decision.effects)
        if broken:
            raise Broken(f"trainer of {self.worker} after {event}: {'; '.join(broken)}")
        for effect in decision.effects:
            match effect:
                case Report(status):
                    self.tell(status)
                case StartBuild(assign):
                    self.training.groups.build(self, assign)
                case CutGroups(below):
                    self.training.groups.cut(self, below)
                case RetireGroups(below):
                    self.training.groups.cut(self, below, RETIRED_S)
                case Switch():
                    pass
        if decision.wake_at_s is not None and decision.wake_at_s != before.rests_until_s:
            self._clockwork.after(decision.wake_at_s - event.at_s, partial(self._by_itself, self._tick))
        self._poke()
        return decision

    def _tick(self) -> None:
        self.feed(events.Ticked(self._clockwork.now_s))

    def _by_itself(self, happens: Callable[[], Any]) -> None:
        """Runs in another thread than the control thread."""
        if self.alive and self.silent:
            self._others.append(happens)
        elif self.alive:
            happens()

    def _wake(self) -> None:
        """Handles the missed events: orders and the others each in their order, interleaved at random."""
        self.silent = self.stopped = False
        orders, others = self._orders, self._others
        self._orders, self._others = [], []
        while orders or others:
            kind = orders if not others or (orders and self._clockwork.chance.random() < 0.5) else others
            happens = kind.pop(0)
            if self.alive:
                happens()

    def _come_back(self) -> None:
        self.busy_since_s = None
        if self.alive:
            group = self.training.groups.get(self.generation)
            lives_on = self.trains and group is not None and not group.is_broken
            self.training.seen["slow ranks waited for"] += lives_on
            if self._is_due:
                self._is_due = False
                self._run()

    # Its training thread.

    def _poke(self) -> None:
        if self._until is not None and not self._is_running and self._until():
            self._run()

    def _run(self) -> None:
        if not self.alive:
            return
        if self.is_busy:
            self._is_due = True
            return
        self._until = None
        self._is_running = True
        wait = next(self._thread, None)
        while callable(wait) and wait():
            wait = next(self._thread, None)
        self._is_running = False
        if callable(wait):
            self._until = wait
        elif wait is not None:
            self._clockwork.after(wait, partial(self._by_itself, self._run))

    def _train(self) -> Generator[Wait, None, None]:
        order = acts(lambda: self.state, lambda: without(self.state.held, self.computed))
        act = next(order, None)
        while act is not None:
            came = yield from self._perform(act)
            act = advance(order, came)
        self.training.over = True
        self.feed(events.Finished(self._clockwork.now_s, {}))
        yield self._clockwork.chance.uniform(0.01, 0.3)
        self.training.exit(self)

    def _perform(self, act: Act) -> Generator[Wait, None, Came | None]:
        match act:
            case Act.COMPUTE:
                todo = without(self.state.held, self.computed)
                self.is_computing = True
                yield COMPUTE_S
                self.is_computing = False
                self.computed = merged((*self.computed, *todo))
            case Act.STEP:
                return (yield from self._take_step())
            case Act.CLOSE:
                return (yield from self._close())
            case Act.AWAIT_WORLD:
                self.feed(events.WorldAwaited(self._clockwork.now_s))
                yield lambda: not self.state.thread.awaits_world
            case Act.START:
                yield from self._start()
            case Act.HAND_ON:
                return (yield from self._hand_on())
            case Act.FORGET:
                self.computed = ()
            case Act.BEGIN_JOIN:
                self._join = Join()
            case Act.JOIN_STEP:
                return (yield from self._join_step(self._join))
            case Act.CATCH_UP:
                yield from self._catch_up(self._join)
            case Act.REPORT_SWITCH:
                self.feed(events.StatusAsked(self._clockwork.now_s))
            case Act.END_JOIN:
                self.training.seen["joined"] += self.state.is_active
        return None

    def _collective(self, kind: str, part: Callable[[], Any], step: int | None = None) -> Generator[Wait, None, Any]:
        """False if the world is dead, None if the collective failed, otherwise its result."""
        self.feed(events.GroupAwaited(self._clockwork.now_s, step))
        yield lambda: self.state.collective is None or self.state.is_in_collective
        world = self.state.world
        if not self.state.is_in_collective or world is None:
            return False
        group = self.training.groups.get(world.generation)
        assert group is not None
        self._has_result = False
        self.training.groups.enter(group, world.rank, kind, part())
        yield lambda: self._has_result
        return self._result

    def _start(self) -> Generator[Wait, None, None]:
        row = yield from self._collective("start", lambda: None)
        if row is False:
            return
        ended = self.feed(events.CollectiveEnded(self._clockwork.now_s, ok=row is not None))
        if not ended.state.is_parked:
            self.row, self.computed = row, ()
            self.feed(events.Started(self._clockwork.now_s, len(row)))

    def _hand_on(self) -> Generator[Wait, None, Came]:
        """Sends the last result from a rank that has it to those that miss it."""
        assert self.state.world is not None
        assign = self.state.world.assign
        row = yield from self._collective("hand on", lambda: self.row, assign.resume - 1)
        if row is False:
            return Came.DEAD
        ended = self.feed(events.CollectiveEnded(self._clockwork.now_s, ok=row is not None))
        if ended.state.is_parked:
            return Came.DEAD
        if ended.state.is_active and ended.state.done < assign.resume:
            if self.row != row[:-1]:
                raise Broken(f"{self.worker} misses more than the last result of rank {assign.source}")
            self.training.seen["laggards"] += 1
            self.row, self.computed = row, ()
            self.feed(events.CaughtUp(self._clockwork.now_s, assign.resume))
        return Came.SAME

    def _take_step(self) -> Generator[Wait, None, Came]:
        reduced, came = yield from self._all_reduce(active=self.state.is_active, samples=self.computed)
        if reduced is not None:
            self.row, self.computed = (*reduced.row, reduced.made), ()
        return came

    def _close(self) -> Generator[Wait, None, Came]:
        reduced, came = yield from self._all_reduce(active=self.state.is_active, over=True)
        if reduced is None:
            return came
        self.training.closing_since_s = self.training.closing_since_s or self._clockwork.now_s
        if is_over(reduced.agreed.active, self._clockwork.now_s - self.training.closing_since_s):
            return Came.OVER
        yield 0.02
        return Came.SAME

    def _join_step(self, join: "Join") -> Generator[Wait, None, Came]:
        reduced, came = yield from self._all_reduce(active=join.is_level)
        if reduced is not None:
            join.entered_at = join.entered_at if join.entered_at is not None else reduced.row
            if not reduced.agreed.over:
                join.recorded[len(reduced.row)] = reduced.made
                self.row = (*self.row, reduced.made) if join.is_level else self.row
        return came

    def _catch_up(self, join: "Join") -> Generator[Wait, None, None]:
        if not join.has_asked:
            join.has_asked = True
            self._clockwork.after(self._clockwork.chance.uniform(0.02, 0.6), partial(self._send_state, join))
        yield COMPUTE_S / 2
        if join.snapshot is None:
            return
        if self._clockwork.happens(0.05, "joining worker gave up"):
            self.feed(events.GaveUp(self._clockwork.now_s, "another state", self._clockwork.chance.choice((0.0, 1.0))))
            return
        self.row = join.snapshot
        while len(self.row) in join.recorded:
            self.row = (*self.row, join.recorded[len(self.row)])
        join.snapshot, join.is_level = self.row, True
        self.feed(events.StateReceived(self._clockwork.now_s, len(self.row)))

    def _send_state(self, join: "Join") -> None:
        """Sends the state of the time when the rank entered; parts for an earlier join are ignored."""
        join.snapshot = join.entered_at

    def _all_reduce(
        self, *, active: bool, samples: Ranges = (), over: bool = False
    ) -> Generator[Wait, None, tuple[Reduced | None, Came]]:
        """All-reduces like `Exchange.all_reduce`, with numbers in place of gradients."""
        part = partial(self._part, active=active, samples=samples, over=over)
        reduced = yield from self._collective("step", part)
        if reduced is False:
            return None, Came.DEAD
        switched = self._receive(reduced, counts=active and reduced is not None and not reduced.agreed.over)
        if reduced is None:
            return None, Came.DEAD
        return reduced, Came.SWITCHED if switched else Came.SAME

    def _part(self, *, active: bool, samples: Ranges, over: bool) -> Part:
        world = self.state.world
        assert world is not None
        ready = self.feed(events.ReadinessDeclared(self._clockwork.now_s)).state.plan.promised
        own = Own(
            ready=ready - world.generation if ready else 0,
            digest=Digest.of([place for first, last in samples for place in range(first, last)]),
            loss_sum=0.0,
            active=active,
            step=len(self.row) if world.is_first else None,
            over=over,
        )
        return Part(control_words.encode(own, world.rank), self.row if active else None, samples)

    def _receive(self, reduced: Reduced | None, *, counts: bool) -> bool:
        """Applies a result; True if the world changed. All ranks ready for the same world switch, unless halted."""
        now_s, world, was_halted = self._clockwork.now_s, self.state.world, self.state.is_halted
        assert world is not None
        if reduced is None:
            self.feed(events.StepFailed(now_s))
            return False
        agreed = reduced.agreed
        ready = agreed.ready_generation(world.generation, world.size)
        decision = self.feed(events.StepReduced(now_s, agreed.active, ready, agreed.ends_after, counts))
        switched = [effect.generation for effect in decision.effects if isinstance(effect, Switch)]
        if switched != ([ready] if ready is not None and not was_halted else []):
            raise Broken(f"all ranks of {world.generation} were ready for {ready}; {self.worker} went to {switched}")
        return bool(switched)


@dataclass
class LiveTraining(StepTruth):
    trainers: list[LiveTrainer] = field(default_factory=list)

    @property
    def alive(self) -> list[LiveTrainer]:
        return [trainer for trainer in self.trainers if trainer.alive]

    # What ends a trainer.

    def end(self, trainer: LiveTrainer) -> None:
        if trainer.alive:
            trainer.alive = False
            self.groups.end(trainer)

    def exit(self, trainer: LiveTrainer) -> None:
        if trainer.alive:
            self.end(trainer)
            trainer.exited(TrainerExit(trainer.birth[1], code=0))

    def fail(self, trainer: LiveTrainer) -> None:
        if trainer.alive:
            self.failures += 1
            self.end(trainer)
            trainer.exited(TrainerExit(trainer.birth[1], code=1, tail=("ValueError",)))

    def abort(self, trainer: LiveTrainer, why: str, stall_s: float) -> None:
        """Reports an abort, against which a claimed stall is checked."""
        if not trainer.alive:
            return
        if trainer.busy_since_s is None or self.clockwork.now_s - trainer.busy_since_s < stall_s:
            raise Broken(f"{trainer.worker} was ended as stalled, but it was not: {why}")
        self.seen["stalled ranks removed"] += 1
        self.failures += 1
        self.end(trainer)
        trainer.exited(TrainerExit(trainer.birth[1], signal="SIGKILL", stalled=why))

    def slow_down(self, trainer: LiveTrainer, for_s: float) -> None:
        trainer.silence(for_s, stopped=False)
        self.clockwork.after(for_s + 0.5, lambda: self.seen.update({"slow trainers kept": trainer.alive}))
