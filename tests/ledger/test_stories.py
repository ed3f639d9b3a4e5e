"""A ledger's amounts by hand: what is paid for, for which time, and how much of it was useful."""

import pytest

from controlplane.catalog.money import MicroDollars
from controlplane.ledger.events import ActivitiesChanged, Hop, PricesChanged, StepsCommitted
from controlplane.ledger.learn import learn
from controlplane.ledger.records import LedgerUnreadable, decode_ledger, encode_ledger
from controlplane.ledger.settle import sums
from controlplane.ledger.spending import forecast, hourly, per_steps, spent
from controlplane.ledger.state import ENDED_AT_MOST, HOURS_AT_MOST, SETTLES_MS, Activity, Line
from messages.ids import Epoch
from tests.ledger.builders import A100, JOB, L4, a_ledger, a_life, a_look, a_rate, at, looks, total

USD = 1_000_000
PRICE = PricesChanged(at(0), {L4: a_rate(1.0, 3.0)})


def test_a_machine_costs_from_its_start_to_the_last_look() -> None:
    life = a_life(started_s=10, lived_s=100_000)
    ledger = a_ledger(PRICE, a_look(at(100), [life]), a_look(at(3610), [life]))
    assert spent(ledger) == USD
    assert hourly(ledger) == USD


def test_a_machine_that_is_gone_costs_until_midway_between_the_last_look_that_found_it_and_the_next() -> None:
    life = a_life(lived_s=1804)
    ledger = a_ledger(PRICE, *looks([life], 8, 7200))
    assert spent(ledger) == USD // 2 + round(4 * USD / 3600)
    assert hourly(ledger) == 0
    assert not ledger.machines


def test_one_under_the_same_name_is_another_machine_and_ends_the_one_before_it() -> None:
    first, second = a_life("1", name="node", lived_s=900), a_life("2", name="node", started_s=1000, lived_s=90_000)
    ledger = a_ledger(PRICE, a_look(at(0), [first]), a_look(at(3600), [second]), a_look(at(3700), [second]))
    assert total(ledger).node_ms == 3700 * 1000
    assert list(ledger.machines) == ["2"]


def test_each_second_is_paid_at_the_price_of_that_second() -> None:
    life = a_life(lived_s=10_000)
    changes = [PRICE, PricesChanged(at(600), {L4: a_rate(6.0)}), PricesChanged(at(1200), {L4: a_rate(0.5)})]
    ledger = a_ledger(*changes, a_look(at(3600), [life]))
    assert spent(ledger) == (1 * 600 + 6 * 600 + 0.5 * 2400) * USD / 3600


def test_a_price_that_comes_a_little_late_counts_from_when_it_held() -> None:
    life = a_life(lived_s=10_000)
    ledger = a_ledger(PRICE, a_look(at(3590), [life]), PricesChanged(at(3570), {L4: a_rate(181.0)}))
    assert spent(ledger) == (3570 * USD + 20 * 181 * USD) // 3600


def test_time_without_a_price_is_told_and_counts_as_free() -> None:
    ledger = a_ledger(PRICE, a_look(at(100), [a_life(kind=A100)]))
    assert spent(ledger) == 0
    assert total(ledger).unpriced_ms == 100_000


def test_what_nodes_do_divides_their_cost_and_a_new_machine_does_not_inherit_it() -> None:
    first, second = a_life("1", name="node", lived_s=398), a_life("2", name="node", started_s=500, lived_s=9000)
    reported = [(60, Activity.IDLE), (100, Activity.WORKING), (300, Activity.RECOVERING), (600, Activity.WORKING)]
    activities = [ActivitiesChanged(at(s), {"node": activity}) for s, activity in reported]
    events = sorted([*looks([first, second], 4, 1000), *activities], key=lambda event: event.at_ms)
    ledger = a_ledger(PRICE, *events)
    seconds = {line.activity: tally.node_ms // 1000 for line, tally in sums(ledger).lines.items()}
    assert seconds == {Activity.STARTING: 160, Activity.IDLE: 40, Activity.WORKING: 600, Activity.RECOVERING: 98}


def test_on_demand_is_what_the_same_time_would_have_cost() -> None:
    both = PricesChanged(at(0), {A100: a_rate(4.0)})
    lives = [a_life("1", lived_s=9000), a_life("2", kind=A100, lived_s=9000)]
    ledger = a_ledger(PRICE, both, a_look(at(3600), lives))
    assert total(ledger).on_demand_cost == (3 + 4) * USD * 3_600_000


def test_machines_that_another_job_left_count_from_the_submission() -> None:
    ledger = a_ledger(PRICE, a_look(at(4600), [a_life(lived_s=9000)]), since_s=1000)
    assert spent(ledger) == USD


def test_steps_are_counted_once_and_send_what_they_send() -> None:
    hop = Hop("us-central1-a", "europe-west4-a", 1 << 20, MicroDollars(80_000))
    steps = [StepsCommitted(at(number), 500, 500 + number, hops=(hop,)) for number in (9, 99, 49, 1023, 1023)]
    ledger = a_ledger(*steps)
    assert ledger.steps == 1024
    assert spent(ledger) == 80_000
    assert ledger.egress["us-central1-a", "europe-west4-a"].sent_bytes == 1 << 30


def test_a_thousand_steps_cost_what_was_spent_and_the_rest_is_forecast_from_it() -> None:
    ledger = a_ledger(PRICE, a_look(at(3600), [a_life(lived_s=9000)]), StepsCommitted(at(3600), 0, 1999))
    assert per_steps(ledger) == USD // 2
    found = forecast(ledger, 10_000)
    assert found is not None
    assert (found.total, found.remaining, found.remaining_steps) == (5 * USD, 4 * USD, 8000)
    assert found.remaining_s == pytest.approx(4 * 3600)


def test_nothing_is_foretold_without_steps() -> None:
    ledger = a_ledger(PRICE, a_look(at(3600), [a_life()]))
    assert forecast(ledger, 100) is None
    assert forecast(a_ledger(StepsCommitted(at(0), 0, 5)), None) is None
    assert per_steps(ledger) is None


def test_a_master_that_died_unsaved_costs_nothing_and_counts_nothing_twice() -> None:
    life = a_life(lived_s=100_000)
    saved = encode_ledger(a_ledger(PRICE, *looks([life], 5, 1000)), Epoch(1))
    ledger, epoch = decode_ledger(JOB, saved)
    assert epoch == 1
    successor = a_ledger(PRICE, a_look(at(3600), [life]))
    assert spent(learn(ledger, a_look(at(3600), [life]))) == spent(successor) == USD


def test_an_old_look_at_a_machine_that_is_gone_changes_nothing() -> None:
    life = a_life(lived_s=100)
    ledger = a_ledger(PRICE, *looks([life], 5, 1000))
    assert learn(ledger, a_look(at(50), [life])) == ledger


def test_it_stays_small_however_long_a_job_runs() -> None:
    lives = [a_life(str(number), started_s=number * 120, lived_s=200) for number in range(1500)]
    ledger = a_ledger(PRICE)
    for number in range(1500):
        near = lives[max(0, number - 3) : number + 3]
        price = PricesChanged(at(number * 120), {L4: a_rate(1.0 + number % 7)})
        activity = ActivitiesChanged(at(number * 120 + 20), {f"node-{number}": Activity.WORKING})
        for event in (price, a_look(at(number * 120 + 10), near), activity):
            ledger = learn(ledger, event)
    assert len(ledger.hours) == HOURS_AT_MOST
    assert len(ledger.ended) == ENDED_AT_MOST
    assert len(ledger.machines) < 10
    assert len(encode_ledger(ledger, Epoch(1))) < 64_000
    assert total(ledger).node_ms >= 1400 * 200 * 1000


def test_sums_larger_than_what_json_keeps_exact_survive_a_restart() -> None:
    life = a_life(lived_s=1e9)
    ledger = a_ledger(PricesChanged(at(0), {L4: a_rate(98_765.432101)}), a_look(at(1e8), [life]))
    settled = a_ledger(PricesChanged(at(0), {L4: a_rate(98_765.432101)}), *(a_look(at(s), [life]) for s in (1e8, 2e8)))
    for each in (ledger, settled):
        assert decode_ledger(JOB, encode_ledger(each, Epoch(3)))[0] == each
    assert settled.lines[Line(L4, Activity.STARTING)].cost > 1 << 63
    assert settled.settles_ms == at(2e8) - SETTLES_MS


@pytest.mark.parametrize("value", [b"", b"{}", b'{"version": 9}', encode_ledger(a_ledger(), Epoch(0))[:-4]])
def test_what_is_no_ledger_is_refused(value: bytes) -> None:
    with pytest.raises(LedgerUnreadable):
        decode_ledger(JOB, value)


def test_a_ledger_with_google_s_names_of_accelerators_is_read_with_the_catalog_s() -> None:
    """A record from before kinds of machines had one name."""
    google = L4._replace(accelerator="nvidia-l4")
    before = a_ledger(
        PricesChanged(at(0), {google: a_rate(2.0)}), *looks([a_life("1", kind=google)], every_s=60, until_s=3600)
    )
    read, _ = decode_ledger(JOB, encode_ledger(before, Epoch(1)))
    assert {line.kind for line in read.lines} == set(read.prices) == {L4}
    assert (total(read), spent(read)) == (total(before), spent(before))


def test_the_same_machines_under_two_names_are_one_line_when_they_are_read() -> None:
    """A record after a write by a master of an older version."""
    google = L4._replace(accelerator="nvidia-l4")
    lives = [a_life("1", kind=google), a_life("2", kind=L4)]
    rates = {google: a_rate(2.0), L4: a_rate(2.0)}
    before = a_ledger(PricesChanged(at(0), rates), *looks(lives, every_s=60, until_s=3600))
    read, _ = decode_ledger(JOB, encode_ledger(before, Epoch(1)))
    assert {line.kind for line in read.lines} == {L4}
    assert (total(read), spent(read)) == (total(before), spent(before))
