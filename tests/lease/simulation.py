"""Several masters and one key, by seed: clocks with different rates, paused processes, stuck main loops, late writes.

An action counts as allowed if `may_act` allows it at that moment, by the process's own clock.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from controlplane.lease import events
from controlplane.lease.decide import decide
from controlplane.lease.effects import Lead, LeaseEffect, ReadKey, StepDown, WriteKey
from controlplane.lease.invariants import check
from controlplane.lease.state import LeaseSettings, Phase, new_lease

SETTINGS = LeaseSettings()
TAKEOVER_S = 3.0
SOME_TIME_S = 1e-5
PULSE_S = 0.5


class Broken(AssertionError):
    """A broken invariant."""


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    broken: str | None
    faults: Counter[str]
    story: list[str]
    epochs: list[int]


@dataclass
class Server:
    """A key with a time to live and compare-and-set, with or without markers of its expiry."""

    system: "System"
    markers: bool
    last: int = 0
    revision: int = 0
    holder: str | None = None
    away: bool = False

    def read(self) -> tuple[int, str | None]:
        return self.revision, self.holder

    def write(self, expected: int, holder: str) -> int | None:
        if expected != self.revision:
            return None
        self._set(holder)
        mine = self.revision
        self.system.after(SETTINGS.ttl_s, lambda: self._expire(mine))
        return mine

    def _expire(self, revision: int) -> None:
        if revision != self.revision:
            return
        if self.markers:
            self._set(None)
        else:
            self.revision, self.holder = 0, None

    def _set(self, holder: str | None) -> None:
        self.last += 1
        self.revision, self.holder = self.last, holder
        self.system.tell_watchers(self.revision, holder)


@dataclass
class Master:
    system: "System"
    name: str
    rate: float
    offset_s: float
    alive: bool = True
    paused: bool = False
    waiting: list[events.LeaseEvent] = field(default_factory=list)
    wakes: int = 0
    stuck_since_s: float | None = None
    """Time by its own clock; None while its main loop runs."""
    behind: list[Callable[[], None]] = field(default_factory=list)
    """Queued work of its main loop."""

    def __post_init__(self) -> None:
        self.lease = new_lease(self.name, SETTINGS)
        self.pulse_s = self.clock_s
        self.system.after(0.0, self.tick)
        self.after(PULSE_S, self._beat)

    @property
    def clock_s(self) -> float:
        return self.offset_s + self.rate * self.system.now_s

    @property
    def acts(self) -> bool:
        return self.alive and not self.paused and self.lease.may_act(self.clock_s)

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """Schedules work by its own clock; dropped if the process is dead by then."""
        self.system.after(max(SOME_TIME_S, delay_s / self.rate), lambda: what() if self.alive else None)

    def tick(self) -> None:
        self.post(events.Ticked(0.0, self.pulse_s))

    def do(self, what: Callable[[], None]) -> None:
        """Runs work in its main loop."""
        if self.stuck_since_s is None:
            what()
        else:
            self.behind.append(what)

    def _beat(self) -> None:
        if self.stuck_since_s is None and not self.paused:
            self.pulse_s = self.clock_s
        self.after(PULSE_S, self._beat)

    def post(self, event: events.LeaseEvent) -> None:
        """Posts an event with the time of its decision, like the keeper."""
        if not self.alive:
            return
        if self.paused:
            self.waiting.append(event)
            return
        now_s = self.clock_s
        before = self.lease
        decision = decide(before, replace(event, at_s=now_s))
        self.lease = decision.state
        broken = check(before, self.lease, decision.effects, now_s)
        if broken:
            raise Broken(f"{self.name} after {event}: {'; '.join(broken)}")
        for effect in decision.effects:
            self._perform(effect)
        self.system.check_one_acts()
        if decision.wake_at_s is not None:
            self.wakes += 1
            mine = self.wakes
            self.after(decision.wake_at_s - now_s, lambda: self.tick() if mine == self.wakes else None)

    def resume(self) -> None:
        self.paused = False
        self.system.check_one_acts()
        waiting, self.waiting = self.waiting, []
        for event in waiting:
            self.post(event)

    def unblock(self) -> None:
        self.stuck_since_s = None
        behind, self.behind = self.behind, []
        for what in behind:
            what()

    def _perform(self, effect: LeaseEffect) -> None:
        match effect:
            case ReadKey(attempt):
                self._call(attempt, lambda server: events.KeyRead(0.0, attempt, *server.read()))
            case WriteKey(attempt, revision):
                self._call(attempt, lambda server: self._written(attempt, server.write(revision, self.name)))
                if self.system.happens(0.02, "paused while it writes"):
                    self.system.pause(self)
            case Lead(epoch):
                self.system.lead(self, epoch)
            case StepDown(why):
                self.system.tell(f"{self.name} steps down: {why}")
                ends_s = self.system.chance.choice((0.001, 0.3, 1.0))
                self.do(lambda: self.after(ends_s, lambda: self.do(lambda: self.post(events.WorkEnded(0.0)))))
            case _:
                assert_never(effect)

    def _written(self, attempt: int, revision: int | None) -> events.LeaseEvent:
        if revision is None:
            return events.Conflicted(0.0, attempt)
        return events.Written(0.0, attempt, revision)

    def _call(self, attempt: int, ask: Callable[[Server], events.LeaseEvent]) -> None:
        system, answered = self.system, False

        def answer(event: events.LeaseEvent) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self.post(event)

        def arrive() -> None:
            if system.server.away:
                return
            event = ask(system.server)
            if not system.happens(0.05, "answer lost"):
                system.after(system.travel_s(), lambda: answer(event))

        self.after(SETTINGS.answer_s, lambda: answer(events.Unanswered(0.0, attempt, "no answer in time")))
        if not system.happens(0.05, "request lost"):
            system.after(system.travel_s(), arrive)


class System:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_s = 0.0
        self.kind_from_s = self.chance.uniform(15.0, 40.0)
        self.story: list[str] = []
        self.made: Counter[str] = Counter()
        self.epochs: list[int] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._born = 0
        self.deaf: set[str] = set()
        self.server = Server(self, markers=self.chance.random() < 0.5)
        self.masters = [self._new_master() for _ in range(self.chance.choice((2, 2, 3)))]

    def run(self) -> Result:
        broken = None
        try:
            self._go()
        except Broken as error:
            broken = str(error)
            self.tell(f"BROKEN: {broken}")
        return Result(self.seed, broken, self.made, self.story, self.epochs)

    def _go(self) -> None:
        self._plan_faults()
        self._run_until(lambda: False, self.kind_from_s)
        self.now_s = self.kind_from_s
        self.tell("the faults stop")
        self.deaf.clear()
        for master in self.masters:
            master.resume()
            master.unblock()
        self._bring_bus_back()
        self._run_until(lambda: False, self.now_s + 6.0)
        self._must(self._one_leads, 0.0, "one leads after the faults stopped")
        for _ in range(3):
            self._run_until(lambda: False, self.now_s + self.chance.uniform(1.0, 5.0))
            if not self._one_leads():
                raise Broken("the leader changed though nothing happened")
            leader = next(master for master in self.masters if master.acts)
            self.tell(f"{leader.name} is killed")
            leader.alive = False
            self.masters.remove(leader)
            self.masters.append(self._new_master())
            self._must(self._one_leads, TAKEOVER_S, "one leads again")

    def check_one_acts(self) -> None:
        acting = [master.name for master in self.masters if master.acts]
        if len(acting) > 1:
            raise Broken(f"{' and '.join(acting)} act at once")
        for master in self.masters:
            since_s = master.stuck_since_s
            if (
                since_s is not None
                and master.acts
                and master.clock_s > since_s + SETTINGS.stuck_after_s + SETTINGS.ttl_s
            ):
                raise Broken(f"{master.name} leads though its main loop is stuck")

    def lead(self, master: Master, epoch: int) -> None:
        self.tell(f"{master.name} leads in epoch {epoch}")
        if self.epochs and epoch <= self.epochs[-1]:
            raise Broken(f"epoch {epoch} after epoch {self.epochs[-1]}")
        self.epochs.append(epoch)

    def tell_watchers(self, revision: int, holder: str | None) -> None:
        for master in self.masters:
            if master.name not in self.deaf and not self.happens(0.05, "sight lost"):
                event = events.KeySeen(0.0, revision, holder)
                self.after(self.travel_s(), partial(master.post, event))

    def travel_s(self) -> float:
        if self.happens(0.1, "message late"):
            return self.chance.uniform(0.05, 3.0)
        return self.chance.uniform(0.0002, 0.005)

    def happens(self, probability: float, fault: str) -> bool:
        if self.now_s < self.kind_from_s and self.chance.random() < probability:
            self.made[fault] += 1
            return True
        return False

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._count, what))

    def tell(self, text: str) -> None:
        self.story.append(f"{self.now_s:8.3f} s  {text}")

    def _run_until(self, done: Callable[[], bool], deadline_s: float) -> bool:
        while self._queue and self._queue[0][0] <= deadline_s and not done():
            at_s, _, what = heapq.heappop(self._queue)
            self.now_s = max(self.now_s, at_s)
            what()
            self.check_one_acts()
        return done()

    def _must(self, holds: Callable[[], bool], within_s: float, what: str) -> None:
        if not self._run_until(holds, self.now_s + within_s):
            raise Broken(f"not within {within_s:g} s: {what}; {[master.lease.why for master in self.masters]}")
        self.tell(what)

    def _one_leads(self) -> bool:
        return sum(master.acts for master in self.masters) == 1

    def _new_master(self) -> Master:
        self._born += 1
        return Master(self, f"m{self._born}", self.chance.uniform(0.92, 1.08), self.chance.uniform(0.0, 1000.0))

    # Faults

    def _plan_faults(self) -> None:
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("master paused", self.pause),
            ("master paused", self.pause),
            ("leader paused", self._pause_leader),
            ("main loop stuck", self._block),
            ("leader's main loop stuck", self._block_leader),
            ("master crashed", self._crash),
            ("master deaf", self._deafen),
            ("bus away", self._lose_bus),
            ("master cut off", self._cut_off),
        ]
        for _ in range(self.chance.randint(2, 14)):
            name, make = self.chance.choice(kinds)
            self.after(self.chance.uniform(0.1, self.kind_from_s), partial(self._make, name, make))

    def _make(self, name: str, make: Callable[[], None]) -> None:
        if not self.masters:
            return
        self.made[name] += 1
        self.tell(f"FAULT: {name}")
        make()

    def pause(self, master: Master | None = None) -> None:
        chosen = master or self.chance.choice(self.masters)
        chosen.paused = True
        self.after(
            self.chance.choice((0.1, 0.5, 1.5, 1.9, 2.5, 8.0)), lambda: chosen.resume() if chosen.paused else None
        )

    def _pause_leader(self) -> None:
        self.pause(self._leader())

    def _leader(self) -> Master | None:
        return next((master for master in self.masters if master.lease.phase is Phase.LEADER), None)

    def _block(self, master: Master | None = None) -> None:
        chosen = master or self.chance.choice(self.masters)
        if chosen.stuck_since_s is None:
            chosen.stuck_since_s = chosen.clock_s
            self.after(self.chance.choice((1.0, 5.0, 9.0, 11.0, 15.0, 20.0)), chosen.unblock)

    def _block_leader(self) -> None:
        self._block(self._leader())

    def _crash(self) -> None:
        gone = self.masters.pop(self.chance.randrange(len(self.masters)))
        gone.alive = False
        self.after(self.chance.uniform(0.1, 4.0), lambda: self.masters.append(self._new_master()))

    def _deafen(self) -> None:
        name = self.chance.choice(self.masters).name
        self.deaf.add(name)
        self.after(self.chance.uniform(0.5, 8.0), lambda: self.deaf.discard(name))

    def _lose_bus(self) -> None:
        self.server.away = True
        for master in self.masters:
            master.post(events.BusLost(0.0))
        self.after(self.chance.uniform(0.3, 5.0), self._bring_bus_back)

    def _bring_bus_back(self) -> None:
        self.server.away = False
        for master in self.masters:
            master.post(events.BusBack(0.0))

    def _cut_off(self) -> None:
        master = self.chance.choice(self.masters)
        self.deaf.add(master.name)
        master.post(events.BusLost(0.0))

        def back() -> None:
            self.deaf.discard(master.name)
            master.post(events.BusBack(0.0))

        self.after(self.chance.uniform(0.3, 5.0), back)


def simulate(seed: int) -> Result:
    return System(seed).run()
