"""Virtual time, seeded chance, and a network that loses, delays, doubles and reorders."""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Faults:
    """Rates of faults until `until_s`."""

    until_s: float
    lose: float
    double: float
    slow: float
    slow_s: float
    save_fails: float
    store_fails: float


@dataclass
class Clockwork:
    seed: int
    now_s: float = 1000.0
    story: list[str] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)
    """Faults that were made, by kind."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.faults = Faults(
            until_s=self.now_s + self.chance.uniform(20, 45),
            lose=self.chance.choice((0.0, 0.02, 0.1)),
            double=self.chance.choice((0.0, 0.05, 0.2)),
            slow=self.chance.choice((0.0, 0.05, 0.2)),
            slow_s=self.chance.choice((0.5, 3.0, 8.0)),
            save_fails=self.chance.choice((0.0, 0.1)),
            store_fails=self.chance.choice((0.0, 0.1)),
        )
        self.after_each: Callable[[], None] = lambda: None
        """Checks what must hold after every event."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def unkind(self) -> bool:
        return self.now_s < self.faults.until_s

    def happens(self, probability: float, fault: str) -> bool:
        if self.unkind and self.chance.random() < probability:
            self.made[fault] += 1
            return True
        return False

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._count, what))

    def tell(self, text: str) -> None:
        self.story.append(f"{self.now_s - 1000:8.3f} s  {text}")

    def send(self, deliver: Callable[[], None]) -> None:
        """Sends one message to one receiver."""
        faults = self.faults
        if self.happens(faults.lose, "message lost"):
            return
        self.after(self._travel_s(), deliver)
        if self.happens(faults.double, "message duplicated"):
            self.after(self._travel_s(), deliver)

    def run_until(self, done: Callable[[], bool], deadline_s: float) -> bool:
        while self._queue and not done():
            at_s, _, what = heapq.heappop(self._queue)
            if at_s > deadline_s:
                return False
            self.now_s = max(self.now_s, at_s)
            what()
            self.after_each()
        return done()

    def _travel_s(self) -> float:
        if self.happens(self.faults.slow, "message late (others overtake it)"):
            return self.chance.uniform(0.05, self.faults.slow_s)
        return self.chance.uniform(0.0002, 0.002)
