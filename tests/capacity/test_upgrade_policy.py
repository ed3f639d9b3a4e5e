"""The next protection from upgrades to request, and its announcement."""

from controlplane.capacity.upgrade_policy import LOOK_S, Protect, Settled, next_step, upgrades_excluded
from controlplane.clouds.outcomes import Done, Outcome, Refused, Unreachable
from messages.ids import ClusterName

US = ClusterName("us")
NOW = 1_800_000_000.0
DAY_S = 86_400.0
TOO_LONG = Refused("too long", "")


def a_request(days: float, *, protected_days: float = 0.0) -> Protect:
    return Protect(US, NOW, NOW + protected_days * DAY_S, days * DAY_S)


def settled(requested: Protect, outcome: Outcome) -> Settled:
    step = next_step(requested, outcome)
    assert isinstance(step, Settled)
    return step


def test_after_a_refusal_half_the_length_is_requested_down_to_two_weeks() -> None:
    assert next_step(a_request(180), TOO_LONG) == a_request(90)
    assert next_step(a_request(28), TOO_LONG) == a_request(14)
    assert isinstance(next_step(a_request(27), TOO_LONG), Settled)


def test_nothing_is_requested_that_ends_before_the_present_protection() -> None:
    assert not isinstance(next_step(a_request(90, protected_days=45), TOO_LONG), Protect)


def test_a_cloud_that_does_not_answer_gets_no_request_for_less() -> None:
    step = settled(a_request(180), Unreachable("no route"))
    assert not step.is_protected
    assert step.event is not None and step.event.kind == "upgrades_allowed" and "no route" in step.event.why


def test_what_still_protects_until_after_the_next_looks_is_enough_for_now() -> None:
    looks = 2 * LOOK_S / DAY_S
    assert settled(a_request(20, protected_days=looks * 2), TOO_LONG).is_protected
    assert not settled(a_request(20, protected_days=looks), TOO_LONG).is_protected


def test_the_day_until_which_no_upgrade_comes_is_announced() -> None:
    requested = a_request(180)
    step = settled(requested, Done())
    assert step.is_protected
    assert step.event is not None and step.event.text == upgrades_excluded(US, requested.until)
    assert step.event.kind == "upgrades_excluded" and "2027-07-14" in step.event.text
