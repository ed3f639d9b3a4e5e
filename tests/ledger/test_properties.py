"""Properties of every ledger: nothing counts twice or is lost, whatever comes late, twice or split."""

from collections.abc import Sequence
from functools import reduce
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controlplane.ledger.amounts import node_money, node_money_by
from controlplane.ledger.events import ActivitiesChanged, LedgerEvent, MachinesListed, PricesChanged, StepsCommitted
from controlplane.ledger.learn import learn
from controlplane.ledger.records import decode_ledger, encode_ledger
from controlplane.ledger.settle import sums
from controlplane.ledger.spending import spent
from controlplane.ledger.state import SETTLES_MS, Activity, Ledger, Rate, Tally, new_ledger
from messages.ids import Epoch
from tests.ledger.builders import A100, JOB, L4, Life, a_life, a_look, a_rate, at, total

KINDS = (L4, A100)
LATEST_S = 400
MOMENT_MS = 500

seconds = st.integers(0, LATEST_S)
lives = st.lists(
    st.builds(
        lambda number, name, start, lived: a_life(
            f"{name}-{number}", name=f"node-{name}", kind=KINDS[name % 2], started_s=start, lived_s=lived
        ),
        st.integers(0, 3),
        st.integers(0, 3),
        seconds,
        st.integers(1, LATEST_S),
    ),
    max_size=6,
    unique_by=lambda life: life.machine,
)
prices = st.builds(
    lambda s, kind, usd: PricesChanged(at(s), {kind: a_rate(usd / 1_000_000, usd / 300_000)}),
    seconds,
    st.sampled_from(KINDS),
    st.integers(0, 10**7),
)
activities = st.builds(
    lambda s, name, activity: ActivitiesChanged(at(s), {f"node-{name}": activity}),
    seconds,
    st.integers(0, 3),
    st.sampled_from(Activity),
)
steps = st.builds(lambda s, last: StepsCommitted(at(s), 0, last), seconds, st.integers(0, 999))


@st.composite
def histories(draw: st.DrawFn) -> list[LedgerEvent]:
    """Events in the order in which they happened, with frequent looks."""
    lived = draw(lives)
    times = sorted(draw(st.sets(seconds, min_size=1, max_size=20)))
    facts: list[LedgerEvent] = [a_look(at(s), lived) for s in times]
    facts += (
        draw(st.lists(prices, max_size=6)) + draw(st.lists(activities, max_size=8)) + draw(st.lists(steps, max_size=3))
    )
    return sorted(facts, key=lambda fact: fact.at_ms)


def the_ledger(events: Sequence[LedgerEvent]) -> Ledger:
    return reduce(learn, events, new_ledger(JOB, at(0)))


def shown(ledger: Ledger) -> object:
    found = sums(ledger)
    lines = {line: tally for line, tally in found.lines.items() if tally.node_ms}
    return lines, {hour: cost for hour, cost in found.hours.items() if cost}, ledger.steps, ledger.egress


@given(histories())
def test_the_parts_add_up_to_the_whole(events: list[LedgerEvent]) -> None:
    ledger = the_ledger(events)
    found = sums(ledger)
    whole = total(ledger)
    assert sum(found.hours.values()) == whole.cost
    by_line = node_money_by({line: tally.cost for line, tally in found.lines.items()})
    assert sum(by_line.values()) == node_money(whole.cost) == spent(ledger)
    assert whole.unpriced_ms <= whole.node_ms


@given(histories(), st.data())
def test_saying_anything_twice_changes_nothing(events: list[LedgerEvent], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(events), max_size=10))
    assert shown(the_ledger([*events, *again])) == shown(the_ledger(events))


@settings(max_examples=200)
@given(histories(), st.randoms(use_true_random=False))
def test_the_order_does_not_matter_within_a_minute(events: list[LedgerEvent], random: Random) -> None:
    late = {id(event): event.at_ms + random.random() * (SETTLES_MS - 1000) for event in events}
    arrived = sorted(events, key=lambda event: late[id(event)])
    assert shown(the_ledger(arrived)) == shown(the_ledger(events))


@given(histories(), st.data())
def test_a_restart_in_between_changes_nothing(events: list[LedgerEvent], data: st.DataObject) -> None:
    ledger = new_ledger(JOB, at(0))
    for event in events:
        ledger = learn(ledger, event)
        if data.draw(st.booleans()):
            restarted, _ = decode_ledger(JOB, encode_ledger(ledger, Epoch(1)))
            assert restarted == ledger
            ledger = restarted
    assert ledger == the_ledger(events)


@given(histories(), st.data())
def test_a_master_that_is_away_for_a_while_misses_no_machine_that_is_there_before_and_after(
    events: list[LedgerEvent], data: st.DataObject
) -> None:
    life = a_life("steady", kind=L4, lived_s=10 * LATEST_S)
    price: LedgerEvent = PricesChanged(at(0), {L4: a_rate(1.5)})
    with_it = [price, *(_with(event, life) for event in events), a_look(at(LATEST_S + 1), [life])]
    unheard = data.draw(st.sets(st.integers(1, len(with_it) - 1)))
    heard = [event for number, event in enumerate(with_it) if number not in unheard or number == len(with_it) - 1]
    only = [event for event in heard if isinstance(event, MachinesListed)]
    ledger = the_ledger([price, *(MachinesListed(each.at_ms, (life.found,)) for each in only)])
    assert total(ledger).cost == (LATEST_S + 1) * 1000 * 1_500_000


@given(histories(), st.data())
def test_looking_more_often_changes_nothing_for_machines_that_stay(
    events: list[LedgerEvent], data: st.DataObject
) -> None:
    life = a_life("steady", kind=A100, lived_s=10 * LATEST_S)
    others = [event for event in events if not isinstance(event, MachinesListed)]
    last = a_look(at(LATEST_S), [life])
    more = [a_look(at(s), [life]) for s in data.draw(st.sets(seconds))]
    often = sorted([*others, *more], key=lambda event: event.at_ms)
    assert shown(the_ledger([*often, last])) == shown(the_ledger([*others, last]))


LONGER = a_life("1", name="node", kind=A100, started_s=0, lived_s=3)
TWO_OF_ONE_NAME: list[LedgerEvent] = [
    a_look(at(1), [a_life("0", name="node", kind=A100, started_s=1, lived_s=1), LONGER]),
    a_look(at(2), [LONGER]),
    a_look(at(62), []),
]


@settings(max_examples=60, deadline=None)
@given(histories())
@example(TWO_OF_ONE_NAME)
def test_it_is_what_a_clerk_would_add_up_moment_by_moment(events: list[LedgerEvent]) -> None:
    assert total(the_ledger(events)) == _clerk(events)


def _clerk(events: Sequence[LedgerEvent]) -> Tally:
    looks = [event for event in events if isinstance(event, MachinesListed)]
    found = {each.machine: each for look in looks for each in look.found}
    whole = Tally()
    for machine in found.values():
        seen = [look.at_ms for look in looks if machine in look.found]
        missed = [look.at_ms for look in looks if look.at_ms > max(seen)]
        heirs = [
            each.started_ms for each in found.values() if each.name == machine.name and each.started_ms > max(seen)
        ]
        end_ms = min([*heirs, (max(seen) + missed[0]) // 2]) if missed else max(seen)
        for now_ms in range(machine.started_ms, end_ms, MOMENT_MS):
            whole += _moment(events, machine.kind, now_ms)
    return whole


def _moment(events: Sequence[LedgerEvent], kind: object, now_ms: int) -> Tally:
    reported = [event for event in events if isinstance(event, PricesChanged) and kind in event.rates]
    held = [event for event in reported if event.at_ms <= now_ms] or [
        event for event in reported if event.at_ms == min(each.at_ms for each in reported)
    ]
    if not held:
        return Tally(MOMENT_MS, unpriced_ms=MOMENT_MS)
    newest = max(event.at_ms for event in held)
    rate: Rate = max((next(iter(event.rates.values())) for event in held if event.at_ms == newest), key=repr)
    return Tally(MOMENT_MS, MOMENT_MS * (rate.paid or 0), MOMENT_MS * (rate.on_demand or 0))


def _with(event: LedgerEvent, life: Life) -> LedgerEvent:
    return MachinesListed(event.at_ms, (*event.found, life.found)) if isinstance(event, MachinesListed) else event
