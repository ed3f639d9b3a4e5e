"""The ledger against the true bill, at a real master's pace: looks a second apart, late, and some of them failed."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random

from controlplane.capacity.observer import EVERY_S
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.ledger.amounts import egress_money, node_money
from controlplane.ledger.book import Book
from controlplane.ledger.events import Hop
from controlplane.ledger.settle import sums
from controlplane.ledger.spending import spent
from controlplane.ledger.state import Rate, new_ledger
from tests.ledger.builders import A100, BEGIN_MS, JOB, L4, Life, a_life, at

LASTS_S = 1200
SEEDS = 5
WITHIN = 0.01
HOP = Hop("us-central1-a", "europe-west4-a", 3 << 20, MicroDollars(50_000))
STEPS_PER_LOOK = 4

Prices = list[tuple[int, int]]
"""Start times and prices."""


def some_lives(chance: Random) -> list[Life]:
    """Lives of spot machines, many of them short."""
    return [
        a_life(f"{number}", kind=kind, started_s=chance.uniform(0, LASTS_S - 1), lived_s=chance.uniform(20, 600))
        for number in range(40)
        for kind in (L4 if number % 4 else A100,)
    ]


def some_prices(chance: Random) -> Prices:
    times_ms = [BEGIN_MS, *sorted(at(chance.uniform(0, LASTS_S)) for _ in range(10))]
    return [(at_ms, chance.randint(200_000, 4_000_000)) for at_ms in times_ms]


def look_times_ms(chance: Random) -> Iterator[int]:
    at_ms = BEGIN_MS
    while at_ms < at(LASTS_S):
        if chance.random() > 0.1:
            yield at_ms
        at_ms += round(1000 * (EVERY_S + chance.uniform(0, 0.3)))
    yield at(LASTS_S)


def the_bill(lives: Sequence[Life], prices: dict[MachineKind, Prices]) -> int:
    cost = 0
    for life in lives:
        ends_ms = min(life.ended_ms, at(LASTS_S))
        for (from_ms, price), (until_ms, _) in pairwise([*prices[life.kind], (at(LASTS_S), 0)]):
            cost += price * max(0, min(until_ms, ends_ms) - max(from_ms, life.started_ms))
    return node_money(cost)


def price_at(prices: Prices, at_ms: int) -> Rate:
    return Rate(MicroDollars([price for since_ms, price in prices if since_ms <= at_ms][-1]))


def test_looks_of_a_second_agree_with_the_true_bill_within_one_percent(tell: Callable[[str], None]) -> None:
    for seed in range(SEEDS):
        chance = Random(seed)
        lives, prices = some_lives(chance), {kind: some_prices(chance) for kind in (L4, A100)}
        book, looked_ms, steps = Book(JOB, BEGIN_MS, new_ledger(JOB, BEGIN_MS)), BEGIN_MS, 0
        book.hear_world((HOP,))
        for at_ms in look_times_ms(chance):
            found = tuple(life.found for life in lives if life.started_ms <= at_ms < life.ended_ms)
            rates = {each.kind: price_at(prices[each.kind], at_ms) for each in found}
            book.see(at_ms, found, rates, (at_ms + looked_ms) // 2)
            book.hear_steps(at_ms, steps, steps + STEPS_PER_LOOK - 1, samples=0)
            steps += STEPS_PER_LOOK
            looked_ms = at_ms
            ledger = book.current()
        assert ledger is not None
        nodes = node_money(sum(tally.cost for tally in sums(ledger).lines.values()))
        billed = the_bill(lives, prices)
        tell(f"seed {seed}: {nodes / billed - 1:+.3%} of {billed} micro-dollars")
        assert abs(nodes - billed) < WITHIN * billed
        assert spent(ledger) - nodes == egress_money(steps * HOP.bytes_per_step * HOP.micro_usd_per_gib) > 0
