from pathlib import Path

import pytest

from controlplane.budget.account import RELEASE_S, Account, Limits, account
from controlplane.budget.keeper import PERIOD_S
from controlplane.budget.terms import Terms, limits_of, terms_of
from controlplane.budget.verdict import Purse, judge
from controlplane.catalog.money import usd_text
from controlplane.ledger.books import BLIND_S
from messages.criteria import WhenSpent
from tests.budget.builders import a_job, figures, recorded, spending, usd
from tests.budget.model import AWAY_S, DELETE_S, UNSEEN_S
from tests.budget.test_never_overspent import SEEDS
from tests.ledger.builders import a_ledger, at

ONE = Limits(1)


def test_what_nobody_has_looked_at_yet_counts_too() -> None:
    ledger = spending(6.0, hours=1)
    assert account(ledger, ONE, at(3600)).spent == usd(6)
    assert account(ledger, ONE, at(3600 + 60)).spent == usd(6.1)


def test_what_a_job_may_have_had_since_anybody_saw_its_machines_is_assumed_and_not_spent() -> None:
    ledger, three = spending(2.0, hours=1, on_demand=6.0), Limits(3)
    seen = account(ledger, three, at(7200))
    blind = account(ledger, three, at(7200), blind=True)
    assert (seen.spent, seen.assumed) == (usd(4), 0)
    assert (blind.spent, blind.assumed, blind.reserve) == (usd(4), usd(3 * 6 - 2), seen.reserve)
    assert account(ledger, three, at(3600), blind=True).assumed == 0


def test_a_job_whose_machines_were_never_seen_may_have_had_them_from_the_start() -> None:
    assert account(a_ledger(), Limits(2, None, usd(3)), at(1800), blind=True).assumed == usd(3)
    within_a_cap = Limits(2, usd(4), usd(3))
    assert account(a_ledger(), within_a_cap, at(1800), blind=True).assumed == usd(2)


def test_what_is_assumed_is_no_longer_left() -> None:
    verdict = judge(usd(10), Account(usd(4), usd(1), usd(5)))
    assert verdict.purse is Purse.SPENT
    assert figures(verdict.why)[:3] == ["4.0000", "10.0000", "5.0000"]


def test_a_machine_that_is_gone_costs_no_more() -> None:
    ledger = spending(6.0, hours=1, gone=True)
    assert account(ledger, ONE, at(7200)).spent == account(ledger, ONE, at(3600)).spent == usd(6 - 0.05)


def test_kept_is_what_all_machines_that_it_may_have_cost_on_demand_while_they_go() -> None:
    ledger = spending(2.0, hours=1, on_demand=6.0)
    assert account(ledger, Limits(1), at(3600)).reserve == usd(6.0 * RELEASE_S / 3600)
    assert account(ledger, Limits(10), at(3600)).reserve == usd(60.0 * RELEASE_S / 3600)


def test_with_a_cap_kept_is_what_the_machines_that_it_buys_may_come_to_cost() -> None:
    assert account(a_ledger(), Limits(10, usd(5), usd(6)), at(0)).reserve == usd(5.0 * RELEASE_S / 3600)
    five_at_most = Limits(10, usd(10))
    ledger = spending(2.0, hours=1, on_demand=6.0)
    assert account(ledger, five_at_most, at(3600)).reserve == usd(5 * 6.0 * RELEASE_S / 3600)
    assert account(ledger, Limits(3, usd(10)), at(3600)).reserve == usd(3 * 6.0 * RELEASE_S / 3600)


@pytest.mark.parametrize("limits", [Limits(3), Limits(1, usd(2.5)), Limits(1, usd(2))])
def test_as_much_is_kept_while_there_are_no_machines_so_that_a_pause_does_not_end_by_itself(limits: Limits) -> None:
    there, gone = (spending(2.0, hours=1, on_demand=6.0, gone=gone) for gone in (False, True))
    assert account(gone, limits, at(3600)).reserve == account(there, limits, at(3600)).reserve > 0


def test_a_machine_that_the_job_never_had_counts_at_what_it_would_cost() -> None:
    dear = Limits(2, micro_usd_per_machine=usd(15))
    assert account(spending(2.0, hours=1), dear, at(3600)).reserve == usd(30.0 * RELEASE_S / 3600)


def test_machines_that_are_there_count_even_if_they_are_more_than_wanted() -> None:
    assert account(spending(6.0, hours=1), Limits(0), at(3600)).reserve == usd(6.0 * RELEASE_S / 3600)


def test_a_budget_is_spent_when_the_rest_is_needed_to_give_machines_back() -> None:
    def purse(spent: float) -> Purse:
        return judge(usd(10), Account(usd(spent), usd(1))).purse

    assert [purse(spent) for spent in (7.9, 8.0, 8.9, 9.0, 11.0)] == [
        Purse.WITHIN,
        Purse.SCARCE,
        Purse.SCARCE,
        Purse.SPENT,
        Purse.SPENT,
    ]


def test_the_numbers_are_the_why() -> None:
    why = judge(usd(10), Account(usd(9.25), usd(1))).why
    assert figures(why) == ["9.2500", "10.0000", "1.0000", f"{RELEASE_S:g}"]


def test_a_budget_is_what_the_file_says_until_somebody_raises_it() -> None:
    job = a_job(10.0)
    assert terms_of(job) == Terms(usd(10), WhenSpent.PAUSE)
    assert terms_of(recorded(job, max_usd_total=12.5)) == Terms(usd(12.5), WhenSpent.PAUSE)
    assert terms_of(a_job(None)) is None


def test_what_the_job_may_have_is_what_it_wants_within_its_cap() -> None:
    assert limits_of(a_job(workers=4, max_usd_per_hour=2.5), usd(3)) == Limits(4, usd(2.5), usd(3))


def test_the_page_about_cost_has_the_numbers_of_the_code() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "cost.md").read_text().split())
    for said in (
        f"the cost of {RELEASE_S:g} s of every machine",
        f"one control period ({PERIOD_S:g} s)",
        f"After {BLIND_S:g} s without a list",
        f"{SEEDS} random markets",
        f"deletions of up to {DELETE_S:g} s",
        f"up to {UNSEEN_S:g} s in which all lists fail",
        f"up to {AWAY_S:g} s without a master",
    ):
        assert said in page, said
    l4 = Limits(4, micro_usd_per_machine=usd(0.85))
    assert usd_text(account(a_ledger(), l4, at(0)).reserve, 2) == "0.11"
    assert "L4 at 0.85 USD" in page
    assert "0.11 USD" in page
