"""The fleet's order alone: it keeps nodes, adds in order, and gives up nodes that have not come first."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.allocator.fleet_order import Supply, targets_in_order
from controlplane.allocator.offers import Offer
from tests.allocator.stage import A, B, C, an_offer

NOW_S = 50.0
LATER_S = 60.0
NOTHING = Supply()


def planned(wanted: int, a: Supply = NOTHING, b: Supply = NOTHING, c: Supply = NOTHING) -> tuple[int, int, int]:
    targets = targets_in_order(wanted, (A, B, C), {A: a, B: b, C: c}, NOW_S)
    return targets[A], targets[B], targets[C]


def test_the_most_wanted_offer_is_filled_first() -> None:
    assert planned(6) == (6, 0, 0)
    assert planned(20) == (8, 8, 4)


def test_what_runs_is_kept_though_another_offer_is_liked_better() -> None:
    assert planned(3, b=Supply(held=2)) == (1, 2, 0)


def test_what_is_on_its_way_counts() -> None:
    assert planned(3, b=Supply(coming=2, settled=False)) == (1, 2, 0)


def test_a_closed_offer_is_passed_over_and_its_empty_slots_are_given_up() -> None:
    assert planned(3, a=Supply(held=1, coming=2, closed_until_s=LATER_S)) == (1, 2, 0)


def test_a_closed_offer_counts_again_when_its_time_is_over() -> None:
    assert planned(3, a=Supply(held=1, coming=2, closed_until_s=NOW_S)) == (3, 0, 0)


def test_an_offer_that_took_a_node_comes_last() -> None:
    assert planned(3, a=Supply(held=2, cooldown_until_s=LATER_S)) == (2, 1, 0)


def test_of_those_that_took_a_node_the_one_comes_first_where_it_is_longest_ago() -> None:
    taken = [Supply(cooldown_until_s=LATER_S + after_s) for after_s in (2.0, 0.0, 1.0)]
    assert planned(9, *taken) == (0, 8, 1)


def test_where_nothing_else_is_left_the_one_that_took_a_node_is_asked_again() -> None:
    closed = Supply(closed_until_s=LATER_S)
    assert planned(3, a=Supply(held=2, cooldown_until_s=LATER_S), b=closed, c=closed) == (3, 0, 0)


def test_a_pool_with_an_operation_under_way_is_left_as_it_is() -> None:
    assert planned(4, a=Supply(held=1, coming=1, settled=False)) == (2, 2, 0)


def test_an_offer_whose_cluster_is_not_there_is_never_raised() -> None:
    assert planned(3, a=Supply(reachable=False)) == (0, 3, 0)


def test_too_much_gives_up_what_has_not_come_before_any_node() -> None:
    assert planned(3, a=Supply(held=2, coming=1, spare=2), b=Supply(held=2)) == (1, 2, 0)


def test_nodes_in_use_are_never_given_up() -> None:
    assert planned(1, a=Supply(held=2), b=Supply(held=2, spare=1)) == (2, 1, 0)


SUPPLIES = st.builds(
    lambda held, spare, **more: Supply(held=held, spare=min(held, spare), **more),
    held=st.integers(0, 5),
    spare=st.integers(0, 5),
    coming=st.integers(0, 3),
    settled=st.booleans(),
    reachable=st.booleans(),
    closed_until_s=st.sampled_from([None, NOW_S - 1, LATER_S]),
    cooldown_until_s=st.sampled_from([None, NOW_S - 1, LATER_S]),
)
OFFERS = [an_offer("z-a", at_most=3), an_offer("z-b", at_most=6), an_offer("z-c", at_most=1)]


@given(st.integers(0, 12), st.lists(SUPPLIES, min_size=3, max_size=3))
def test_a_plan_never_raises_beyond_what_is_wanted_or_offered(wanted: int, supplies: list[Supply]) -> None:
    known: dict[Offer, Supply] = dict(zip(OFFERS, supplies, strict=True))
    targets = targets_in_order(wanted, OFFERS, known, NOW_S)
    assert targets.keys() == known.keys()
    for offer, supply in known.items():
        now = supply.held + supply.coming
        if targets[offer] > now:
            assert targets[offer] <= offer.max_nodes
            assert sum(targets.values()) <= wanted
        if not supply.settled:
            assert targets[offer] == now
        assert targets[offer] >= supply.held - supply.spare
