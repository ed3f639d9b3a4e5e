"""The time that a rank waits before it reports the wait."""

from tradewind.sdk.timing import LEAST_S, UNKNOWN_S, Patience


def after_steps(count: int, step_s: float) -> Patience:
    patience = Patience()
    for _ in range(count):
        patience.took(step_s)
    return patience


def test_before_steps_were_measured_nothing_is_a_sign() -> None:
    assert after_steps(2, 0.1).limit_s == UNKNOWN_S


def test_short_steps_leave_time_for_a_busy_machine() -> None:
    assert after_steps(20, 0.001).limit_s == LEAST_S


def test_long_steps_are_given_several_of_their_own_length() -> None:
    assert after_steps(20, 2.0).limit_s > 4.0


def test_a_wait_in_which_no_rank_was_missing_doubles_the_limit_until_many_steps_were_quiet() -> None:
    patience = after_steps(20, 0.1)
    before_s = patience.limit_s
    patience.was_wrong()
    assert patience.limit_s == 2 * before_s
    for _ in range(200):
        patience.took(0.1)
    assert patience.limit_s == before_s


def test_what_a_step_takes_is_known_after_some() -> None:
    assert (after_steps(3, 0.5).step_s, after_steps(4, 0.5).step_s) == (0.0, 0.5)
