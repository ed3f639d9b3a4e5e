"""Properties under random markets: no limit is exceeded, nothing better is missed, equal inputs give equal plans."""

import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.plans.exhaustive import ExhaustiveSearch
from controlplane.catalog.shipped import shipped_links
from controlplane.planning.criteria import Criteria
from controlplane.planning.greedy import greedy
from controlplane.planning.market import CurrentCapacity, Market, Nodes
from controlplane.planning.plan import Change, anywhere, choose, plan
from controlplane.planning.quotas import allowed, taken
from controlplane.planning.scoring import breach, gain, is_affordable, score, sort_key
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile
from messages.criteria import Objective
from tests.planning.builders import a_market, a_small_profile, an_option, best_sort_key
from tests.planning.markets import criterias, markets, presents, profiles

TUNING = Tuning(alternatives=2)
FAST = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def situations(draw: st.DrawFn) -> tuple[Market, CurrentCapacity]:
    market = draw(markets())
    return market, draw(presents(market))


def assert_within_limits(criteria: Criteria, market: Market, current: CurrentCapacity, nodes: Nodes) -> None:
    assert sum(nodes.values()) <= criteria.max_workers
    assert len({choice.accelerator for choice in nodes}) <= 1
    for choice, count in nodes.items():
        assert count <= max(market.options[choice].limit, current.held.get(choice, 0))
        if choice in current.stocked_out:
            assert count <= current.held.get(choice, 0)
    limits = allowed(market.quotas, current.held)
    for key, amount in taken(market.quotas, nodes).items():
        assert amount <= limits.get(key, math.inf)


def assert_money_kept(criteria: Criteria, profile: Profile, market: Market, nodes: Nodes) -> None:
    found = score(profile, market, nodes, TUNING)
    assert found is not None
    limit = criteria.max_micro_usd_per_hour
    assert limit is None or found.estimate.micro_usd_per_hour <= limit


@FAST
@given(criterias(), profiles(), situations())
def test_no_plan_passes_a_limit_a_quota_or_the_cap_on_money(
    criteria: Criteria, profile: Profile, situation: tuple[Market, CurrentCapacity]
) -> None:
    market, current = situation
    made = plan(criteria, profile, market, current, TUNING)
    if made.change is Change.WAIT:
        kept = current.expected()
        assert made.ask == made.placement
        assert all(count <= kept[choice] for choice, count in made.placement.items())
        assert sum(made.placement.values()) <= criteria.max_workers
        if criteria.max_micro_usd_per_hour is not None:
            prices = (market.options[choice].micro_usd_per_hour * count for choice, count in made.placement.items())
            assert sum(prices) <= criteria.max_micro_usd_per_hour
        return
    assert sum(made.placement.values()) >= criteria.min_workers
    assert_within_limits(criteria, market, current, made.placement)
    assert_money_kept(criteria, profile, market, made.placement)
    for other in made.alternatives:
        assert_within_limits(criteria, market, current, other.nodes)
        assert_money_kept(criteria, profile, market, other.nodes)


@FAST
@given(criterias(), profiles(), situations())
def test_what_is_asked_for_fits_beside_everything_that_may_still_come(
    criteria: Criteria, profile: Profile, situation: tuple[Market, CurrentCapacity]
) -> None:
    """The limits hold too while no earlier request has come or left."""
    market, current = situation
    made = plan(criteria, profile, market, current, TUNING)
    there = current.committed()
    raised = {choice: count for choice, count in made.ask.items() if count > there.get(choice, 0)}
    if not raised:
        return
    at_most = {choice: max(made.ask.get(choice, 0), there.get(choice, 0)) for choice in {*made.ask, *there}}
    assert sum(at_most.values()) <= criteria.max_workers
    assert len({choice.accelerator for choice in at_most}) == 1
    limits = allowed(market.quotas, current.held)
    for key, amount in taken(market.quotas, at_most).items():
        if amount > taken(market.quotas, there).get(key, 0):
            assert amount <= limits.get(key, math.inf)
    if criteria.max_micro_usd_per_hour is not None:
        machines = sum(count * market.options[choice].micro_usd_per_hour for choice, count in at_most.items())
        assert machines <= criteria.max_micro_usd_per_hour


@settings(FAST, max_examples=80)
@given(criterias(), profiles(), markets())
def test_nothing_better_is_missed(criteria: Criteria, profile: Profile, market: Market) -> None:
    made = plan(criteria, profile, market, tuning=TUNING)
    wanted = best_sort_key(criteria, profile, market, TUNING)
    if wanted is None:
        assert made.change is Change.WAIT
        return
    assert made.proven
    assert made.score is not None
    assert sort_key(made.score, criteria) == pytest.approx(wanted, rel=1e-6)


@settings(FAST, max_examples=60)
@given(criterias(), profiles(), situations())
def test_what_is_held_leads_to_what_every_placement_tried_by_the_same_rules_leads_to(
    criteria: Criteria, profile: Profile, situation: tuple[Market, CurrentCapacity]
) -> None:
    market, current = situation
    made = plan(criteria, profile, market, current, TUNING)
    search = ExhaustiveSearch(criteria, profile, market, current, TUNING)
    best, change, _ = choose(search, search.best(anywhere(search)).best)
    if best is None:
        assert made.change is Change.WAIT
        return
    assert made.score is not None
    assert sort_key(made.score, criteria) == pytest.approx(sort_key(best.score, criteria), rel=1e-6), (
        made.change,
        change,
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("objective", [Objective.COST, Objective.THROUGHPUT])
def test_nothing_better_is_missed_where_zones_are_too_many_for_every_combination(
    objective: Objective, seed: int
) -> None:
    """Seven zones of three regions on two continents, none of which has enough machines alone."""
    chance = random.Random(seed)
    zones = [f"{region}-{letter}" for region in ("us-central1", "us-west1") for letter in "abc"] + ["europe-west4-a"]
    market = a_market(
        *(an_option(zone, usd=chance.uniform(0.2, 1.0), limit=chance.randint(1, 2)) for zone in zones),
        links=shipped_links(),
    )
    criteria = Criteria(min_workers=7, max_workers=9, objective=objective)
    profile = a_small_profile(gradient_bytes=chance.choice((10**5, 10**7, 10**9)))
    made = plan(criteria, profile, market, tuning=TUNING)
    wanted = best_sort_key(criteria, profile, market, TUNING)
    assert wanted is not None
    assert made.score is not None
    assert sort_key(made.score, criteria) == pytest.approx(wanted, rel=1e-6)


@FAST
@given(criterias(), profiles(), situations())
def test_the_same_question_has_the_same_answer(
    criteria: Criteria, profile: Profile, situation: tuple[Market, CurrentCapacity]
) -> None:
    market, current = situation
    again = Market({**market.options}, market.links, market.quotas)
    assert plan(criteria, profile, market, current, TUNING) == plan(criteria, profile, again, current, TUNING)


@FAST
@given(criterias(), profiles(), situations())
def test_what_runs_is_given_up_only_for_a_gain_above_the_threshold(
    criteria: Criteria, profile: Profile, situation: tuple[Market, CurrentCapacity]
) -> None:
    market, current = situation
    made = plan(criteria, profile, market, current, TUNING)
    kept = current.expected()
    gives_up = any(made.placement.get(choice, 0) < count for choice, count in kept.items())
    as_it_is = score(profile, market, kept, TUNING) if kept else None
    stands = as_it_is is not None and is_affordable(criteria, as_it_is) and not breach(criteria, market, current, kept)
    if gives_up and stands:
        assert as_it_is is not None
        assert made.score is not None
        assert gain(made.score, as_it_is, criteria) >= TUNING.threshold


@FAST
@given(criterias(), profiles(), situations())
def test_a_plan_that_was_carried_out_is_kept(
    criteria: Criteria, profile: Profile, situation: tuple[Market, CurrentCapacity]
) -> None:
    market, current = situation
    made = plan(criteria, profile, market, current, TUNING)
    if made.change is Change.WAIT:
        return
    after = plan(
        criteria, profile, market, CurrentCapacity(held=made.placement, stocked_out=current.stocked_out), TUNING
    )
    assert after.score is not None
    assert made.score is not None
    assert after.placement == made.placement or gain(after.score, made.score, criteria) > 0


@FAST
@given(criterias(), profiles(), situations(), st.integers(1, 8))
def test_the_greedy_step_keeps_every_limit_too_and_gives_nothing_up(
    criteria: Criteria, profile: Profile, situation: tuple[Market, CurrentCapacity], wanted: int
) -> None:
    market, current = situation
    there = current.committed()
    nodes = greedy(criteria, profile, market, current, wanted, TUNING)
    assert all(nodes[choice] >= count for choice, count in there.items())
    assert sum(nodes.values()) <= max(sum(there.values()), min(wanted, criteria.max_workers))
    for choice, count in nodes.items():
        if count > there.get(choice, 0):
            assert count <= market.options[choice].limit
            assert choice not in current.stocked_out
    limits = allowed(market.quotas, current.held)
    for key, amount in taken(market.quotas, nodes).items():
        assert amount <= max(limits.get(key, math.inf), taken(market.quotas, there).get(key, 0))
    if nodes != there and criteria.max_micro_usd_per_hour is not None:
        assert_money_kept(criteria, profile, market, nodes)
