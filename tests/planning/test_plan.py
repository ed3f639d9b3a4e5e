"""Plans and their reasons: money, speed, deadlines, risk, and no change if none pays."""

import random
import re

import pytest

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.planning.criteria import Criteria
from controlplane.planning.explanations import (
    COSTS_MONEY,
    DEADLINE_OVER,
    NOT_ENOUGH,
    UNMEASURED,
    begins,
    no_room,
    waits,
)
from controlplane.planning.greedy import greedy
from controlplane.planning.market import CurrentCapacity, Market, Nodes
from controlplane.planning.plan import Change, Plan, anywhere, plan
from controlplane.planning.scoring import is_affordable, score
from controlplane.planning.search import Candidate, Found, Search
from controlplane.planning.tuning import Tuning
from messages.criteria import Objective
from tests.planning.builders import (
    ALL_GPUS,
    DISK_GB,
    HOLLAND,
    IOWA_A,
    IOWA_B,
    OREGON,
    USD,
    a_choice,
    a_market,
    a_small_profile,
    an_option,
    disks_of,
    gpus_of,
    some_criteria,
)

FASTEST = some_criteria(objective=Objective.THROUGHPUT)


def planned(criteria: Criteria, market: Market, current: CurrentCapacity | None = None, **profile: object) -> Plan:
    return plan(criteria, a_small_profile(**profile), market, current)


def test_the_cheapest_zone_is_taken_and_the_others_say_by_how_much_they_lost() -> None:
    made = planned(some_criteria(), a_market(an_option(usd=0.5), an_option(OREGON, usd=0.3)))
    assert set(made.placement) == {a_choice(OREGON)}
    assert made.score is not None
    assert made.why == begins(made.score, some_criteria())
    assert any("dearer" in other.why_not for other in made.alternatives)


def test_what_is_cheaper_and_loses_by_its_risk_says_by_how_much() -> None:
    steady, shaky = an_option(usd=0.5, lifetime_s=1e9), an_option(OREGON, usd=0.48, lifetime_s=1200.0)
    made = planned(some_criteria(min_workers=4, max_workers=4), a_market(steady, shaky))
    [why_not] = [other.why_not for other in made.alternatives if set(other.nodes) == {a_choice(OREGON)}]
    [cheaper, risk, worse] = re.findall(r"\+?[\d.]+(?=% \w| USD)", why_not)
    assert (cheaper, risk[0], float(worse) > 0) == ("4.0", "+", True)
    assert why_not.split(" ")[-3] == "worse"


def test_what_is_said_of_a_loser_leaves_out_what_cannot_be_seen() -> None:
    made = planned(
        some_criteria(min_workers=4, max_workers=4),
        a_market(an_option(usd=0.5, lifetime_s=1e9), an_option(OREGON, usd=0.55, lifetime_s=1e9)),
    )
    assert ["10.0"] in [re.findall(r"\d[\d.]*", other.why_not) for other in made.alternatives]


def test_the_most_steps_are_had_from_the_faster_accelerator() -> None:
    made = planned(FASTEST, a_market(an_option(usd=0.1), an_option(HOLLAND, "A100-40", 4.0)))
    assert made.placement == {a_choice(HOLLAND, "A100-40"): 8}


def test_a_world_has_one_accelerator_though_two_would_be_more_machines() -> None:
    market = a_market(an_option(limit=3), an_option(IOWA_A, "A100-40", 4.0, limit=2))
    assert len({choice.accelerator for choice in planned(FASTEST, market).placement}) == 1


def test_large_gradients_stay_in_one_zone_though_two_are_cheaper_together() -> None:
    market = a_market(an_option(usd=0.5, limit=8), an_option(IOWA_B, usd=0.1, limit=2))
    criteria = some_criteria(min_workers=4)
    assert len({choice.zone for choice in planned(criteria, market, gradient_bytes=10**9).placement}) == 1
    assert len({choice.zone for choice in planned(criteria, market, gradient_bytes=0).placement}) == 2


def test_egress_counts_against_the_cap_on_money() -> None:
    """Machines for $0.80 an hour, and egress between the zones that costs more than they."""
    market = a_market(an_option(usd=0.4, limit=1), an_option(IOWA_B, usd=0.4, limit=1))
    criteria = some_criteria(objective=Objective.THROUGHPUT, max_micro_usd_per_hour=MicroDollars(USD))
    assert sum(planned(criteria, market, gradient_bytes=10**7).placement.values()) == 2
    assert sum(planned(criteria, market, gradient_bytes=10**9).placement.values()) == 1


def test_a_deadline_is_met_with_as_little_money_as_it_takes() -> None:
    market = a_market(an_option(usd=0.2, limit=8), an_option(HOLLAND, "A100-40", 4.0))
    slow = planned(some_criteria(objective=Objective.DEADLINE, min_steps_per_s=0.2), market)
    fast = planned(some_criteria(objective=Objective.DEADLINE, min_steps_per_s=2.0), market)
    assert {choice.accelerator for choice in slow.placement} == {"L4"}
    assert {choice.accelerator for choice in fast.placement} == {"A100-40"}
    assert fast.score is not None
    assert fast.score.estimate.steps_per_s >= 2.0


def test_a_deadline_that_nothing_meets_is_chased_and_said() -> None:
    made = planned(some_criteria(objective=Objective.DEADLINE, min_steps_per_s=99.0), a_market(an_option()))
    assert sum(made.placement.values()) == 8
    assert "99 steps/s" in made.why


def test_a_deadline_that_is_over_is_told_as_over_and_not_as_a_speed() -> None:
    over = some_criteria(objective=Objective.DEADLINE, min_steps_per_s=float("inf"))
    made = planned(over, a_market(an_option()))
    assert sum(made.placement.values()) == 8
    assert DEADLINE_OVER in made.why
    assert "inf" not in made.why


def test_while_nobody_knows_what_a_step_takes_a_deadline_is_as_fast_as_may_be_and_says_so() -> None:
    market = a_market(an_option(usd=0.2, limit=8), an_option(HOLLAND, "A100-40", 4.0))
    easy = some_criteria(objective=Objective.DEADLINE, min_steps_per_s=0.2)
    assumed, measured = planned(easy, market, is_assumed=True), planned(easy, market)
    assert assumed.placement == {a_choice(HOLLAND, "A100-40"): 8}
    assert assumed.score is not None
    assert assumed.why == f"{begins(assumed.score, FASTEST)}; {UNMEASURED}"
    assert {choice.accelerator for choice in measured.placement} == {"L4"}
    assert UNMEASURED not in planned(FASTEST, market, is_assumed=True).why + measured.why


def test_while_nobody_knows_what_a_step_takes_nothing_is_said_of_speed() -> None:
    market = a_market(an_option(usd=0.4), an_option(OREGON, usd=0.5))
    criteria = some_criteria(min_workers=1, max_workers=2)
    made = planned(criteria, market, is_assumed=True)
    said = [made.why, *(other.why_not for other in made.alternatives)]
    assert made.score is not None
    assert made.why == begins(made.score, criteria)
    assert any(each.startswith("25.0% dearer") for each in said)
    assert not [word for word in ("fast", "slow", "step") if word in "; ".join(said)]


def test_a_zone_that_takes_machines_often_has_to_be_cheaper() -> None:
    def zone_of(short_lived_usd: float) -> set[str]:
        market = a_market(an_option(usd=0.5), an_option(OREGON, usd=short_lived_usd, lifetime_s=1800.0))
        return {choice.zone for choice in planned(some_criteria(min_workers=4), market, gradient_bytes=10**8).placement}

    assert zone_of(0.48) == {IOWA_A}
    assert zone_of(0.2) == {OREGON}


def test_zones_of_nearly_one_price_share_the_workers() -> None:
    near = a_market(an_option(usd=0.50), an_option(IOWA_B, usd=0.51))
    far = a_market(an_option(usd=0.50), an_option(IOWA_B, usd=0.90))
    criteria = some_criteria(min_workers=8)
    assert sorted(planned(criteria, near, gradient_bytes=0).placement.values()) == [4, 4]
    assert planned(criteria, far, gradient_bytes=0).placement == {a_choice(IOWA_A): 8}


@pytest.mark.parametrize(("share", "on_demand"), [(0.0, 0), (0.25, 2), (0.3, 3), (1.0, 8)])
def test_the_share_on_demand_is_rounded_up(share: float, on_demand: int) -> None:
    market = a_market(an_option(), an_option(usd=1.5, spot=False))
    made = planned(some_criteria(objective=Objective.THROUGHPUT, on_demand=share, min_workers=8), market)
    assert made.placement.get(a_choice(spot=False), 0) == on_demand


def test_a_quota_is_shared_by_the_zones_of_a_region() -> None:
    quotas = {gpus_of("us-central1"): 5}
    made = planned(FASTEST, a_market(an_option(), an_option(IOWA_B), quotas=quotas))
    assert sum(made.placement.values()) == 5


def test_a_quota_is_shared_by_spot_and_on_demand_nodes_that_draw_on_it() -> None:
    criteria = some_criteria(objective=Objective.THROUGHPUT, on_demand=0.5)
    options = (an_option(), an_option(spot=False), an_option(OREGON), an_option(OREGON, spot=False))
    made = planned(criteria, a_market(*options, quotas={disks_of("us-central1"): 399, disks_of("us-west1"): 100}))
    assert sum(made.placement.values()) == 4
    assert sum(count for choice, count in made.placement.items() if choice.region == "us-central1") == 3


def test_a_quota_of_the_project_is_shared_by_all_regions() -> None:
    made = planned(FASTEST, a_market(an_option(), an_option(OREGON), quotas={ALL_GPUS: 5}))
    assert sum(made.placement.values()) == 5


def test_a_plan_says_which_quota_keeps_it_from_more_nodes() -> None:
    tight = planned(FASTEST, a_market(quotas={disks_of("us-central1"): 500, ALL_GPUS: 64}))
    assert tight.limited_by == (disks_of("us-central1"),)
    assert planned(FASTEST, a_market(quotas={disks_of("us-central1"): 800})).limited_by == ()


def test_a_job_that_waits_for_a_quota_says_which() -> None:
    made = planned(some_criteria(min_workers=4), a_market(quotas={ALL_GPUS: 3}))
    assert made.change is Change.WAIT
    assert made.why.endswith(no_room([ALL_GPUS]))


def test_where_too_few_may_be_had_what_there_is_stays_and_the_numbers_are_said() -> None:
    made = planned(some_criteria(min_workers=5), a_market(an_option(limit=3)), CurrentCapacity(held={a_choice(): 2}))
    assert (made.change, made.placement) == (Change.WAIT, {a_choice(): 2})
    assert re.findall(r"\d+ \w+", made.why) == ["5 workers", "3 of"]


def test_where_the_cap_no_longer_buys_enough_to_train_no_more_is_held_than_it_buys() -> None:
    """Prices rose: two of four machines are within the cap, and the job waits with them."""
    criteria = some_criteria(min_workers=4, max_micro_usd_per_hour=MicroDollars(2 * USD))
    made = planned(criteria, a_market(an_option(usd=1.0)), CurrentCapacity(held={a_choice(): 4}))
    assert (made.change, made.placement, made.ask) == (Change.WAIT, {a_choice(): 2}, {a_choice(): 2})


def test_machines_that_cost_nothing_are_planned_and_kept_while_a_job_waits() -> None:
    free = an_option(usd=0.0, limit=2)
    waits = planned(some_criteria(min_workers=4), a_market(free), CurrentCapacity(held={a_choice(): 2}))
    assert (waits.change, waits.placement) == (Change.WAIT, {a_choice(): 2})
    moves = planned(
        some_criteria(), a_market(free, an_option(OREGON, usd=0.5)), CurrentCapacity(held={a_choice(OREGON): 2})
    )
    assert (moves.change, set(moves.placement)) == (Change.MOVE, {a_choice()})
    assert "costs nothing" in moves.why
    first = planned(some_criteria(), a_market(free, an_option(OREGON, usd=0.5)))
    assert {other.why_not for other in first.alternatives} == {COSTS_MONEY}


def test_quotas_of_spot_and_on_demand_nodes_limit_the_sizes_that_the_search_tries() -> None:
    """Without these limits, the search ends at its limit of programs before it tries 8 nodes, the most that fit."""
    zones = (IOWA_A, IOWA_B, "us-central1-c")
    market = a_market(
        *(an_option(zone, spot=spot, limit=64) for zone in zones for spot in (True, False)),
        quotas={gpus_of("us-central1"): 4, gpus_of("us-central1", spot=False): 4},
    )
    criteria = some_criteria(objective=Objective.THROUGHPUT, on_demand=0.5, max_workers=64)
    made = planned(criteria, market, global_batch=256)
    assert sum(made.placement.values()) == 8
    assert made.proven


def test_a_search_that_ends_at_its_limit_does_not_claim_that_no_placement_exists() -> None:
    """Two nodes fit. The bounds allow 3 and 4: they do not see that one region has no on-demand and spot nodes."""
    market = a_market(
        *(an_option(zone, spot=spot) for zone in (IOWA_A, OREGON) for spot in (True, False)),
        quotas={disks_of("us-central1"): 2 * DISK_GB, gpus_of("us-west1"): 0, gpus_of("us-west1", spot=False): 0},
    )
    criteria = some_criteria(objective=Objective.THROUGHPUT, on_demand=0.5)
    stopped = plan(criteria, a_small_profile(), market, tuning=Tuning(solves=1))
    assert (stopped.change, stopped.proven) == (Change.WAIT, False)
    assert stopped.why == waits(criteria, market, CurrentCapacity(), (), is_proven=False)
    assert stopped.why != waits(criteria, market, CurrentCapacity(), ())
    complete = planned(criteria, market)
    assert (sum(complete.placement.values()), complete.proven) == (2, True)


def test_nodes_that_the_solver_found_and_the_score_rejects_prove_nothing() -> None:
    class RejectingSearch(Search):
        def scored(self, nodes: Nodes) -> Candidate | None:
            assert nodes
            return None

    search = RejectingSearch(some_criteria(), a_small_profile(), a_market(), CurrentCapacity(), Tuning())
    assert search.best(anywhere(search)) == Found(best=None, proven=False)


def test_what_is_no_longer_allowed_goes_before_anything_else_is_asked_for() -> None:
    held = CurrentCapacity(held={a_choice(HOLLAND): 4})
    made = planned(some_criteria(min_workers=4), a_market(an_option()), held)
    assert set(made.placement) == {a_choice(IOWA_A)}
    assert made.ask == {}


# Running nodes


def test_what_runs_stays_where_another_place_is_a_little_cheaper() -> None:
    held = CurrentCapacity(held={a_choice(IOWA_A): 4})
    made = planned(some_criteria(min_workers=4), a_market(an_option(usd=0.5), an_option(OREGON, usd=0.47)), held)
    assert (made.change, made.placement) == (Change.KEEP, {a_choice(IOWA_A): 4})
    assert f"{Tuning().threshold:.0%}" in made.why
    assert NOT_ENOUGH in made.alternatives[0].why_not


def test_what_runs_moves_where_another_place_is_much_cheaper() -> None:
    market = a_market(an_option(usd=0.5), an_option(OREGON, usd=0.2))
    made = planned(some_criteria(min_workers=4), market, CurrentCapacity(held={a_choice(IOWA_A): 4}))
    assert (made.change, set(made.placement)) == (Change.MOVE, {a_choice(OREGON)})


MOVES = a_market(an_option(usd=0.5), an_option(OREGON, usd=0.2))


def test_what_runs_is_let_go_only_as_its_successors_are_there() -> None:
    criteria = some_criteria(min_workers=2, max_workers=4)
    first = planned(criteria, MOVES, CurrentCapacity(held={a_choice(IOWA_A): 2}))
    assert first.change is Change.MOVE
    assert first.ask == {a_choice(IOWA_A): 2, a_choice(OREGON): 2}
    coming = planned(criteria, MOVES, CurrentCapacity(held={a_choice(IOWA_A): 2}, in_flight={a_choice(OREGON): 2}))
    assert coming.ask[a_choice(IOWA_A)] == 2
    come = planned(criteria, MOVES, CurrentCapacity(held={a_choice(IOWA_A): 2, a_choice(OREGON): 2}))
    assert a_choice(IOWA_A) not in come.ask


def test_room_for_successors_is_made_without_ending_the_job() -> None:
    made = planned(some_criteria(min_workers=3, max_workers=4), MOVES, CurrentCapacity(held={a_choice(IOWA_A): 4}))
    assert made.ask == {a_choice(IOWA_A): 3}


def test_where_a_job_cannot_run_with_fewer_all_go_at_once() -> None:
    made = planned(some_criteria(min_workers=4, max_workers=4), MOVES, CurrentCapacity(held={a_choice(IOWA_A): 4}))
    assert (made.change, made.ask) == (Change.MOVE, {})


def test_what_is_above_a_limit_goes_at_once() -> None:
    criteria = some_criteria(min_workers=2, max_workers=8, max_micro_usd_per_hour=MicroDollars(USD))
    made = planned(
        criteria, a_market(an_option(usd=0.9), an_option(OREGON, usd=0.2)), CurrentCapacity(held={a_choice(): 4})
    )
    assert a_choice() not in made.ask


def test_a_lost_node_is_replaced_since_its_life_pays_for_the_pause() -> None:
    made = planned(FASTEST, a_market(an_option()), CurrentCapacity(held={a_choice(): 7}))
    assert (made.change, made.placement) == (Change.GROW, {a_choice(): 8})


def test_a_joining_worker_that_will_not_live_long_enough_is_not_taken() -> None:
    made = planned(FASTEST, a_market(an_option(lifetime_s=60.0)), CurrentCapacity(held={a_choice(): 7}), global_batch=8)
    assert made.change is Change.GROW
    brief = a_market(an_option(lifetime_s=20.0))
    made = planned(FASTEST, brief, CurrentCapacity(held={a_choice(): 7}), global_batch=8)
    assert (made.change, made.placement) == (Change.KEEP, {a_choice(): 7})
    assert re.findall(r"\d+ s\b", made.why) == ["20 s", "30 s"]


def test_more_workers_than_allowed_shrink_without_a_move() -> None:
    held = CurrentCapacity(held={a_choice(IOWA_A): 6})
    made = planned(
        some_criteria(max_workers=4, min_workers=4), a_market(an_option(), an_option(OREGON, usd=0.49)), held
    )
    assert (made.change, made.placement) == (Change.SHRINK, {a_choice(IOWA_A): 4})


def test_another_accelerator_is_asked_for_only_when_the_old_machines_are_gone() -> None:
    market = a_market(an_option(usd=4.0), an_option(IOWA_A, "A100-40", 0.5))
    made = planned(some_criteria(min_workers=4), market, CurrentCapacity(held={a_choice(): 4}))
    assert {choice.accelerator for choice in made.placement} == {"A100-40"}
    assert made.ask == {}
    after = planned(some_criteria(min_workers=4), market, CurrentCapacity())
    assert after.ask == after.placement == made.placement


def test_a_noisy_market_moves_nothing_and_a_lasting_fall_of_prices_does() -> None:
    """A day of ten-minute ticks: prices wander by 4 % around equal means, then one zone falls to half."""
    noise = random.Random(7)
    held: Nodes = {}
    moves = 0
    criteria = some_criteria(min_workers=4, max_workers=8)
    for tick in range(144):
        base = {IOWA_A: 0.50, IOWA_B: 0.50, OREGON: 0.25 if tick >= 120 else 0.50}
        prices = {zone: usd * (1 + noise.uniform(-0.04, 0.04)) for zone, usd in base.items()}
        market = a_market(*(an_option(zone, usd=usd) for zone, usd in prices.items()))
        made = plan(criteria, a_small_profile(), market, CurrentCapacity(held=held), Tuning(alternatives=0))
        moves += bool(held) and any(made.placement.get(choice, 0) < count for choice, count in held.items())
        assert tick >= 120 or moves == 0, made.why
        held = made.placement
    assert moves == 1
    assert set(held) == {a_choice(OREGON)}


def test_without_the_threshold_the_same_market_thrashes() -> None:
    """The test above without the threshold."""
    noise = random.Random(7)
    held: Nodes = {}
    moves = 0
    for _ in range(40):
        market = a_market(*(an_option(zone, usd=0.5 * (1 + noise.uniform(-0.04, 0.04))) for zone in (IOWA_A, OREGON)))
        restless = Tuning(alternatives=0, threshold=0.0)
        made = plan(some_criteria(min_workers=4), a_small_profile(), market, CurrentCapacity(held=held), restless)
        moves += bool(held) and set(made.placement) != set(held)
        held = made.placement
    assert moves > 5


# Faults that were planted


def test_a_plan_after_a_shrink_knows_nothing_of_what_was_planned_before() -> None:
    """A remembered plan would request the lost zone again, although it is out of stock and only half is wanted."""
    market = a_market(an_option(limit=8), an_option(IOWA_B, limit=8))
    before = planned(some_criteria(objective=Objective.THROUGHPUT, max_workers=8), market, gradient_bytes=0)
    assert sorted(before.placement.values()) == [4, 4]
    shrunk = some_criteria(objective=Objective.THROUGHPUT, max_workers=4)
    current = CurrentCapacity(held={a_choice(IOWA_B): 3}, stocked_out=frozenset({a_choice(IOWA_A)}))
    after = planned(shrunk, market, current, gradient_bytes=0)
    assert after.placement == {a_choice(IOWA_B): 4}
    assert after == planned(shrunk, market, current, gradient_bytes=0)


def test_the_cap_is_checked_with_what_is_on_its_way() -> None:
    """Four are held and four requested elsewhere: eight may exist, and no more may be requested."""
    market = a_market(an_option(usd=0.5), an_option(IOWA_B, usd=0.5), an_option(OREGON, usd=0.01))
    current = CurrentCapacity(held={a_choice(IOWA_A): 4}, in_flight={a_choice(IOWA_B): 4})
    made = planned(some_criteria(objective=Objective.THROUGHPUT), market, current, gradient_bytes=0)
    raised = sum(max(0, count - current.committed().get(choice, 0)) for choice, count in made.ask.items())
    assert raised == 0
    assert greedy(FASTEST, a_small_profile(), market, current, wanted=12) == current.committed()


def test_money_that_was_asked_for_is_spent_before_more_is_asked_for() -> None:
    market = a_market(an_option(usd=1.0), an_option(IOWA_B, usd=1.0, limit=2))
    criteria = some_criteria(objective=Objective.THROUGHPUT, max_micro_usd_per_hour=MicroDollars(4 * USD))
    current = CurrentCapacity(held={a_choice(IOWA_A): 2}, in_flight={a_choice(IOWA_B): 2})
    for targeted in (plan(criteria, a_small_profile(), market, current).ask, _greedy(criteria, market, current)):
        at_most = {choice: max(targeted.get(choice, 0), count) for choice, count in current.committed().items()}
        assert sum({**targeted, **at_most}.values()) <= 4


def _greedy(criteria: Criteria, market: Market, current: CurrentCapacity) -> Nodes:
    return greedy(criteria, a_small_profile(), market, current, wanted=8)


# The greedy step


def test_a_loss_is_answered_near_what_is_left_before_far_and_cheap() -> None:
    market = a_market(an_option(limit=4), an_option(IOWA_B, usd=0.6), an_option(OREGON, usd=0.1))
    current = CurrentCapacity(held={a_choice(IOWA_A): 4})
    assert greedy(FASTEST, a_small_profile(), market, current, wanted=6) == {a_choice(IOWA_A): 4, a_choice(IOWA_B): 2}


def test_what_comes_last_is_taken_where_all_else_has_no_room_the_lowest_number_first() -> None:
    market = a_market(an_option(limit=4), an_option(IOWA_B, limit=4), an_option(OREGON, limit=3))
    current = CurrentCapacity(held={a_choice(IOWA_A): 2})
    last = {a_choice(IOWA_A): 9.0, a_choice(IOWA_B): 5.0}
    targeted = greedy(FASTEST, a_small_profile(), market, current, 8, last=last)
    assert targeted == {a_choice(IOWA_A): 2, a_choice(IOWA_B): 3, a_choice(OREGON): 3}


def test_machines_for_nothing_may_be_had_without_end() -> None:
    criteria = some_criteria(max_workers=8, objective=Objective.THROUGHPUT, max_micro_usd_per_hour=MicroDollars(USD))
    market = a_market(an_option(usd=0.0, limit=8))
    assert plan(criteria, a_small_profile(gradient_bytes=0), market).ask == {a_choice(): 8}


def test_a_zone_without_stock_is_passed_over() -> None:
    market = a_market(an_option(), an_option(IOWA_B), an_option(OREGON))
    current = CurrentCapacity(held={a_choice(IOWA_A): 3}, stocked_out=frozenset({a_choice(IOWA_A), a_choice(IOWA_B)}))
    targeted = greedy(FASTEST, a_small_profile(), market, current, wanted=5)
    assert targeted == {a_choice(IOWA_A): 3, a_choice(OREGON): 2}


def test_the_greedy_step_stops_at_the_cap_on_money() -> None:
    criteria = some_criteria(max_micro_usd_per_hour=MicroDollars(3 * USD))
    market = a_market(an_option(usd=0.5))
    targeted = greedy(criteria, a_small_profile(), market, CurrentCapacity(held={a_choice(): 2}), wanted=8)
    assert targeted == {a_choice(): 6}
    found = score(a_small_profile(), market, targeted, Tuning())
    assert found is not None
    assert is_affordable(criteria, found)


def test_on_demand_machines_are_added_only_up_to_their_share() -> None:
    market = a_market(an_option(limit=2), an_option(usd=1.0, spot=False))
    current = CurrentCapacity(held={a_choice(): 2, a_choice(spot=False): 1})
    targeted = greedy(some_criteria(on_demand=0.5), a_small_profile(), market, current, wanted=6)
    assert targeted == {a_choice(): 2, MachineKind(*a_choice(spot=False)): 3}
